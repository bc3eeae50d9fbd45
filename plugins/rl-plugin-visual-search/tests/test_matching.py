"""Which answers are right, compared by string."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from rl_plugin_visual_search.matching import compare, mean_relative_accuracy, the_number

COLORS = ("red", "dark blue", "green")


@pytest.mark.parametrize(
    "answer",
    [
        *("B", "b", "(B)", "B.", "B)", "[B]", "B: dark blue", "(B) Dark blue.", "dark blue", "\\text{B}", "B^."),
        *("**B**", "_B_", "`B`", "**(B)** dark blue", "**B.** dark blue", "__B__: dark blue", "(**B**)", "`dark blue`"),
    ],
)
def test_right_choice_is_a_letter_or_the_text_of_its_option(answer: str) -> None:
    for expected in ("B", "dark blue", "(B) dark blue"):
        verdict = compare(answer, [expected], options=COLORS)
        assert (verdict.right, verdict.kind) == (True, "choice")


@pytest.mark.parametrize(
    "answer", ["A", "blue", "B. green", "**B** green", "_A_ or _B_", "A or B", "BB", "D", "", "1", "Both"]
)
def test_other_choices_are_wrong(answer: str) -> None:
    assert not compare(answer, ["B"], options=COLORS).right


def test_letter_is_a_choice_without_a_list_of_options_too() -> None:
    assert compare("(c) the third", ["C"]).right
    assert compare("**(C)** cat", ["C"]).right
    assert not compare("Cat", ["C"]).right
    assert compare("a", ["a"]).kind == "text"


@pytest.mark.parametrize(
    ("answer", "expected", "right"),
    [
        ("7", "7", True),
        ("7.0", "7", True),
        ("There are 7 boats.", "7", True),
        ("$1,234.50", "1234.5", True),
        ("−3", "-3", True),
        ("15%", "15", True),
        ("7 of 9", "7", False),
        ("8", "7", False),
        ("seven", "7", False),
        ("H2O", "2", False),
        ("7/2", "7", False),
        ("1e7", "1", False),
        ("", "7", False),
        ("1/2", "2", False),
        ("x^2", "2", False),
        ("12^2", "2", False),
        ("x^-2", "-2", False),
        ("x^-2", "2", False),
        ("x^{2}", "2", False),
        ("- 3", "-3", True),
        ("- 3", "3", False),
        ("x = - 3", "-3", True),
        ("It is – 3.", "-3", True),
        ("–3", "-3", True),
        ("-3", "– 3", True),
        ("7 - 3", "-3", False),
        ("7–3", "-3", False),
        ("__18__", "18", True),
        ("_18_", "18", True),
        ("`18`", "18", True),
        ("x_18", "18", False),
        ("18 (2 dozen)", "18", True),
        ("**18 eggs** (2 dozen)", "18", True),
        ("18 (i.e. 2 (two) dozen)", "18", True),
        ("18 (2 dozen)", "2", False),
        ("18 (or 20)", "18", False),
        ("18 (20)", "18", False),
        ("2 (x + 1)", "2", False),
    ],
)
def test_only_number_of_an_answer_must_be_equal(answer: str, expected: str, right: bool) -> None:
    verdict = compare(answer, [expected])
    assert (verdict.right, verdict.kind) == (right, "number")


@pytest.mark.parametrize(
    ("found", "expected", "share"),
    [(10, 10, 1), (11, 10, 0.8), (12, 10, 0.6), (15, 10, 0), (14, 10, 0.2), (0, 0, 1), (1, 0, 0), (-10, 10, 0)],
)
def test_mean_relative_accuracy_counts_thresholds(found: int, expected: int, share: float) -> None:
    assert mean_relative_accuracy(Fraction(found), Fraction(expected)) == Fraction(str(share))


def test_relative_numbers_are_right_from_half_of_the_thresholds_on() -> None:
    assert compare("12 m", ["10"], relative=True).right
    assert not compare("12 m", ["10"]).right
    assert not compare("14 m", ["10"], relative=True).right
    assert compare("no number", ["10"], relative=True).relative == 0.0


@pytest.mark.parametrize("answer", ["a tiger", "Tiger.", "the  TIGER", "ｔｉｇｅｒ"])
def test_texts_are_equal_apart_from_case_punctuation_and_articles(answer: str) -> None:
    verdict = compare(answer, ["tiger"])
    assert (verdict.right, verdict.kind) == (True, "text")


def test_any_accepted_text_is_right_and_no_other() -> None:
    accepted = ["The owner is a fan of the Golden State Warriors", "Warriors"]
    assert compare("warriors", accepted).right
    assert not compare("fan", accepted).right
    assert not compare("...", accepted).right


def test_right_texts_may_be_formatted() -> None:
    assert compare("`x`", ["y", "`x`"]).right
    for answer in ("$5", "A. $5", "**A.** $5"):
        assert compare(answer, ["A. $5"], options=["$5", "$6"]).right


def test_yes_and_no_may_begin_a_longer_answer() -> None:
    assert compare("Yes, there is a cat.", ["Yes"]).right
    assert not compare("No, yes would be wrong.", ["yes"]).right
    assert not compare("I say yes", ["yes"]).right


@pytest.mark.parametrize(
    "text",
    ["9" * 9_999, "1," * 4_999, "1 " * 4_999, "-" * 9_999, "1." * 4_999, "A" * 10**6, "1 (" * 3_333, "_a" * 4_999],
)
def test_long_answers_are_compared_quickly(text: str) -> None:
    begin = time.process_time()
    the_number(text)
    assert not compare(text, ["7"]).right
    assert not compare(text, ["B"], options=COLORS).right
    assert time.process_time() - begin < 2
