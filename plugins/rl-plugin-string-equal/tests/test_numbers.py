"""Number literals, and extraction of the answer from a response."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_plugin_string_equal.extract import expected_number, last_box, single_number, stated_number
from rl_plugin_string_equal.numbers import MAXIMUM_DIGITS, literals, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72),
        ("-5", -5),
        ("\N{MINUS SIGN}5", -5),
        ("+5", 5),
        ("1,234", 1234),
        ("1,234,567.50", Fraction("1234567.5")),
        ("12\N{NARROW NO-BREAK SPACE}345", 12345),
        ("1{,}000", 1000),
        (r"1\,000", 1000),
        (r"10,\!000", 10000),
        ("72.00", 72),
        (".5", Fraction(1, 2)),
        ("007", 7),
        ("$18.50", Fraction(37, 2)),
        ("-$5", -5),
        ("$-5", -5),
        (r"\$5", 5),
        ("15%", 15),
        (r"15\%", 15),
        ("7/2", Fraction(7, 2)),
        ("7 / 2", Fraction(7, 2)),
        ("-7/2", Fraction(-7, 2)),
        ("7/-2", Fraction(-7, 2)),
        ("1.5/2", Fraction(3, 4)),
        ("3 1/2", Fraction(7, 2)),
        ("-3 1/2", Fraction(-7, 2)),
        (r"\frac{7}{2}", Fraction(7, 2)),
        (r"-\frac{7}{2}", Fraction(-7, 2)),
        (r"\frac{-7}{2}", Fraction(-7, 2)),
        (r"\dfrac{7}{2}", Fraction(7, 2)),
        (r"\frac72", Fraction(7, 2)),
        (r"3\frac{1}{2}", Fraction(7, 2)),
        ("1e3", 1000),
        ("1.5E-2", Fraction(3, 200)),
        ("3 x 10^5", 300000),
        (r"3 \times 10^{-2}", Fraction(3, 100)),
        (r"90^\circ", 90),
        ("72 clips", 72),
        ("5 m^2", 5),
        ("x = 5", 5),
        ("x_1 = 5", 5),
        (r"72 \text{ clips}", 72),
        (r"\text{about } 72", 72),
        (r"\frac1{2}", Fraction(1, 2)),
        (r"\frac{1}2", Fraction(1, 2)),
        (r"\frac 1 2", Fraction(1, 2)),
        ("1 000 000", 1000000),
        ("1 000.5", Fraction("1000.5")),
        ("18^.", 18),
        ("**18**.", 18),
        ("**1,000**.", 1000),
        ("**$18**.", 18),
        ("**-3**.", -3),
        ("__18__.", 18),
        ("***18***", 18),
        ("**18 clips**", 18),
        ("1'000", 1000),
        ("1\N{RIGHT SINGLE QUOTATION MARK}000\N{RIGHT SINGLE QUOTATION MARK}000.5", Fraction("1000000.5")),
        ("1_000", 1000),
        ("12 345", 12345),
        ("5 000 ml", 5000),
        ("$1.5 million", 1500000),
        (r"1.5 \text{ million dollars}", 1500000),
        ("2 Thousand", 2000),
        ("5 millionths", 5),
        ("- 3", -3),
        ("x = - 3", -3),
        ("= - $3", -3),
        (r"- \frac{1}{2}", Fraction(-1, 2)),
        ("\N{EN DASH}3", -3),
        ("\N{EN DASH} 3", -3),
        ("x = \N{EN DASH} 3", -3),
        ("7/\N{EN DASH}2", Fraction(-7, 2)),
        ("3 x 10^\N{EN DASH}2", Fraction(3, 100)),
    ],
)
def test_single_number_is_parsed_exactly(text: str, value: Fraction) -> None:
    assert single_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "twelve",
        "x",
        "1,00",
        "12,34",
        "1,234,5",
        "5.000,50",
        "1.2.3",
        "3:30",
        "1/0",
        "1/2/3",
        "3 7/2",
        "2^3",
        "2**3",
        "5²",
        "3½",
        "1e999",
        "1e-999",
        "2 x 10^9999",
        "9" * (MAXIMUM_DIGITS + 1),
        "5 or 6",
        "5, 6",
        r"2\pi",
        r"2\sqrt{3}",
        r"\frac{x+1}{2}",
        r"\frac{1}{0}",
        "x + 5",
        "x - 5",
        "x-5",
        "x \N{MINUS SIGN} 5",
        "x \N{EN DASH} 5",
        "3\N{EN DASH}5",
        "7²",
        "1'00",
        "1_2",
        "1 000 00",
        "1 00",
        "1,000 000",
        "1 000,50",
        "1,000'000",
        "5 100 ml",
        "1/5 100 ml",
        r"5 100\text{ ml}",
        "2.5k",
        "2 k",
        "$50K",
        "$2.5M",
    ],
)
def test_text_without_exactly_one_valid_number_is_none(text: str) -> None:
    assert single_number(text) is None


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (r"First \boxed{3}, so \boxed{72}. That took 5 steps.", 72),
        (r"\boxed{\text{total} = \frac{7}{2}}", Fraction(7, 2)),
        (r"\boxed{\boxed{5}}", 5),
        (r"\fbox{5}", 5),
        (r"so \boxed{72} and then \boxed{7", 72),
        (r"$\boxed{-1{,}234.5}$", Fraction("-1234.5")),
        (r"\boxed{}, or 72", None),
        (r"\boxed{x} so 72", None),
        ("48/2 = 24\n#### 72", 72),
        ("#### 5\n#### 72 clips\nin 2 months", 72),
        ("####1,000", 1000),
        ("#### $18.50", Fraction(37, 2)),
        ("#### -5.", -5),
        ("#### Step 1\n5 apples\n#### Step 2\nSo 7 apples", 7),
        ("#### 1. Add\n5 apples\n#### 2. Count\nSo 7 apples", 7),
        ("The answer is 72, because 48 + 24 = 72 and not 100.", 72),
        ("The answer is **72** clips in 2 months", 72),
        ("The final answer is: $18.50 for 3 people", Fraction(37, 2)),
        ("Answer: 72\n(5 steps)", 72),
        ("**Answer:** 72 (5 steps)", 72),
        ("answer = 7/2, from 4 numbers", Fraction(7, 2)),
        (r"The answer is \(72\), in 2 months", 72),
        ("The answer is 5 + 3 = 8. I used 2 numbers", 8),
        ("The answer is 5 + 3 apples", None),
        ("The answer is x = 8, in 2 steps", 8),
        ("The answer is 72. I think this answer is right, 100 percent", 72),
        ("The answer is 1,00", None),
        ("The answer is not 5 but 7", 7),
        ("She sold 48, then 24, in all 72.", 72),
        ("48-24", 24),
        ("The answer is **18**.", 18),
        ("The answer is **18** (2 dozen).", 18),
        ("**24** (2 dozen)", 24),
        ("24 eggs (2 dozen)", 24),
        ("She has 24 eggs (2 dozen).", 24),
        ("**24 eggs** (2 dozen)", 24),
        ("$24$ large eggs (2 dozen)", 24),
        ("24 (i.e. 2 (two) dozen)", 24),
        ("24 (12 + 12)", 24),
        ("**18**\n\n(Note 3)", 18),
        ("18 eggs.\n\n(Note 3)", 18),
        ("48 and 24 give a total of (72)", 72),
        ("48 and 24 is (72 clips)", 72),
        ("She adds 48 and 24. (That is 72.)", 72),
        ("**Answer: 42**", 42),
        ("18**.", 18),
        ("2**3", None),
        ("So 5 ** 2", None),
        ("There were 3 000 clips in 12 boxes, 12 345 678 in all.", 12345678),
        ("In 2024 100 clips", 100),
        ("two packs of 5 100 ml bottles", None),
        ("There were 12 345.", 12345),
        ("So 1 000 00", None),
        ("It costs 1'000 francs", 1000),
        ("She earns $1.5 million", 1500000),
        ("She earns 2.5k", None),
        ("The answer is - 3", -3),
        ("The answer is **\N{EN DASH} 3**.", -3),
        ("#### - 3", -3),
        ("so x = - 3", -3),
        ("so x = \N{EN DASH}3", -3),
        ("\N{EN DASH}3", -3),
        ("- 3", None),
        ("\N{EN DASH} 3 clips", None),
        ("- 48\n- 24", 24),
        ("Answer:\n- 3", 3),
        ("- 48 + 24 = 72", 72),
        ("48 - 24", 24),
        ("48\N{EN DASH}24", 24),
        ("The answer is 3\N{EN DASH}5", None),
        ("H2O and CO2 weigh 18 g", 18),
        ("18 g of H2O", 18),
        ("5 m^2", 5),
        ("pages 5 to 1/2/2020", None),
        ("<think>the answer is 5</think>It is 7.", 7),
        ("", None),
        ("no number", None),
    ],
)
def test_stated_number_of_a_response(response: str, value: Fraction | None) -> None:
    assert stated_number(response) == value


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (72, 72),
        (72.0, 72),
        (0.1, Fraction(1, 10)),
        (1e22, 10**22),
        ("1,000", 1000),
        ("72.00", 72),
        ("7/2", Fraction(7, 2)),
        ("$18.50", Fraction(37, 2)),
        ("1_000", 1000),
        ("1'000", 1000),
        ("1 000 000", 1000000),
        ("1 000 00", None),
        ("$1.5 million", 1500000),
        ("2.5k", None),
        ("- 3", -3),
        ("\N{EN DASH}3", -3),
        ("Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72", 72),
        (r"so \boxed{5} of 6", 5),
        ("from 48 to #### n/a", None),
        (True, None),
        (None, None),
        ("", None),
        ("unknown", None),
        ("5 or 6", None),
        (float("nan"), None),
        (float("inf"), None),
        ((72,), None),
    ],
)
def test_expected_number_of_an_answer_field(answer: object, value: Fraction | None) -> None:
    assert expected_number(answer) == value


def test_last_balanced_box_is_used() -> None:
    assert last_box(r"\boxed{a{b}c} \boxed{d") == "a{b}c"
    assert last_box(r"\boxed{\{5\}}") == r"\{5\}"
    assert last_box("{5} }") is None


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000_000,
        "1," * 500_000,
        "1/" * 500_000,
        "1 " * 500_000,
        "1" + " " * 1_000_000,
        r"\boxed{" * 150_000,
        r"\frac{" * 150_000,
        r"\frac{1}" * 150_000,
        "#### " * 200_000,
        "#### 1. a" * 100_000,
        "answer is " * 100_000,
        "answer is 1+" * 100_000,
        "answer" + " " * 1_000_000,
        "1^" * 500_000,
        "1e9" * 300_000,
        "(" * 1_000_000,
        "1 (" * 300_000,
        "1 a a (a" * 100_000,
        "1 (a\n" * 200_000,
        "1\n(" * 300_000,
        "1'000" * 200_000,
        "1 000 " * 150_000,
        "- 1" * 300_000,
        "= - " * 200_000,
        "9" * 50 + "e" + "9" * 500_000,
    ],
    ids=lambda text: text[:9],
)
def test_adversarial_text_is_parsed_in_linear_time(text: str) -> None:
    started = time.process_time()
    stated_number(text)
    expected_number(text)
    assert time.process_time() - started < 5


def test_only_the_end_of_a_long_response_is_searched() -> None:
    assert stated_number("word " * 100_000 + "72") == 72
    assert stated_number("72" + " word" * 100_000) is None


@given(st.fractions(max_denominator=10**6).filter(lambda value: abs(value) < 10**30))
def test_formatted_fraction_parses_back(value: Fraction) -> None:
    text = str(value)
    written = [text, rf"\boxed{{{text}}}", f"#### {text}", f"After 3 steps the answer is {text} apples, not 1."]
    if value.denominator != 1:
        written.append(rf"\boxed{{\frac{{{value.numerator}}}{{{value.denominator}}}}}")
    assert [stated_number(each) for each in written] == [value] * len(written)


@given(st.integers(min_value=-(10**40), max_value=10**40), st.integers(min_value=0, max_value=20))
def test_separators_and_trailing_zeros_are_ignored(value: int, zeros: int) -> None:
    text = f"{value:,}" + ("." + "0" * zeros if zeros else "")
    assert stated_number(f"She has ${text}.") == value == expected_number(text)


@given(st.text(alphabet=st.sampled_from("0123456789-+–.,:/^exk '*$%{}\\()=#\n½²answer isboxedfrac"), max_size=200))
def test_literals_of_any_text_do_not_overlap(text: str) -> None:
    stated_number(text)
    expected_number(text)
    ends = [0]
    for literal in literals(plain(text)):
        assert ends[-1] <= literal.start < literal.end
        ends.append(literal.end)
