from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_plugin_gsm8k_tools.calculator import MAX_RESULT_DIGITS, calculator, evaluate, show
from rlcore.tool import ToolError


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("48/2", "24"),
        ("7/2", "3.5"),
        ("2^10", "1024"),
        ("2**0.5", "1.41421356237310"),
        ("1234567.5*2", "2469135"),
        ("1,000*2", "2000"),
        ("1,234,567.5 + 1", "1234568.5"),
        ("$5*2", "10"),
        ("15%", "0.15"),
        ("50% * 80", "40"),
        ("80 * (1 - 15%)", "68"),
        ("15 % 4", "3"),
        ("-7 % 3", "2"),
        ("-7 // 2", "-4"),
        ("3 x 4", "12"),
        ("2x3", "6"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("10 - 3 = 7", "7"),
        ("2(3+4)", "14"),
        ("(2)(3)", "6"),
        ("-2^2", "-4"),
        ("2**3**2", "512"),
        ("2**-1", "0.5"),
        ("5 - -3", "8"),
        (".5 + 1.", "1.5"),
        ("0.1 + 0.2", "0.3"),
        ("1/3*3", "1"),
        ("100/3", "33.3333333333333"),
        ("-1/7", "-0.142857142857143"),
        ("123456789*987654321.5", "121932631174363663.5"),
        ("1e5", "100000"),
    ],
)
def test_it_computes(expression: str, shown: str) -> None:
    assert calculator(expression) == shown


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("5/0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("9**9**9", "exponent is too large"),
        ("2**9999", "too large"),
        ("1e400", "401 digits"),
        ("1e99999999", "too large"),
        ("__import__('os').getcwd()", "cannot read"),
        ("1,0", "cannot read ',0' at position 2"),
        ("5 apples", "cannot read 'apples' at position 3"),
        ("2 3", "unexpected '3' at position 3"),
        ("(1", "closing parenthesis"),
        ("1)", "unexpected ')'"),
        ("2 +", "ends where a number is missing"),
        ("", "empty"),
        ("= 3", "empty"),
        ("٣+1", "cannot read"),
        ("(-8)**(1/3)", "negative"),
        ("(" * 100 + "1" + ")" * 100, "nested"),
        ("2**" * 60 + "1", "nested"),
        ("1" * 501, "longer than 500"),
    ],
)
def test_it_says_what_is_wrong(expression: str, says: str) -> None:
    with pytest.raises(ToolError, match=says.replace("(", r"\(").replace(")", r"\)")):
        calculator(expression)


def reference_of(tree: object) -> tuple[str, Fraction | None]:
    """A random tree as fully parenthesised text, and its value by plain fractions."""
    if isinstance(tree, Fraction):
        return f"({tree.numerator}/{tree.denominator})", tree
    assert isinstance(tree, tuple)
    (left, a), operator, (right, b) = reference_of(tree[0]), tree[1], reference_of(tree[2])
    text = f"({left} {operator} {right})"
    if a is None or b is None or (operator in ("/", "//", "%") and b == 0):
        return text, None
    match operator:
        case "+":
            return text, a + b
        case "-":
            return text, a - b
        case "*":
            return text, a * b
        case "/":
            return text, a / b
        case "//":
            return text, Fraction(a // b)
        case _:
            return text, a % b


numbers = st.fractions(min_value=-50, max_value=50, max_denominator=20)
trees = st.recursive(
    numbers, lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner), max_leaves=8
)


@given(trees)
def test_it_equals_fractions(tree: object) -> None:
    text, value = reference_of(tree)
    if value is None:
        with pytest.raises(ToolError, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == value


flat = st.lists(st.tuples(st.sampled_from(["+", "-", "*"]), st.integers(0, 10**6)), max_size=8)


@given(st.integers(0, 10**6), flat)
def test_precedence_is_the_usual_one(first: int, rest: list[tuple[str, int]]) -> None:
    text = str(first) + "".join(f" {operator} {number}" for operator, number in rest)
    assert calculator(text) == str(eval(text))  # integers of the test's own making


@given(st.text(max_size=600) | st.text(alphabet="0123456789.,+-*/%^()$=x× eE", max_size=120))
def test_no_text_makes_it_raise_anything_else_or_take_long(text: str) -> None:
    started = time.process_time()
    try:
        shown = calculator(text)
    except ToolError:
        pass
    else:
        assert len(shown) <= MAX_RESULT_DIGITS + 30
        assert evaluate(shown) is not None
    assert time.process_time() - started < 2


@given(st.fractions(max_denominator=10**6))
def test_what_it_shows_reads_back(value: Fraction) -> None:
    assert abs(evaluate(show(value)) - value) <= abs(value) * Fraction(1, 10**14)


def test_the_model_is_told_of_one_text_parameter() -> None:
    assert calculator.name == "calculator"
    assert list(calculator.schema.parameters["required"]) == ["expression"]
