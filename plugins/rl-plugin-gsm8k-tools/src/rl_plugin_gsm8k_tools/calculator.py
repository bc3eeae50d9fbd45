"""A calculator with exact arithmetic for untrusted expressions written by a model.

Grammar (whitespace is ignored, anything else is an error)::

    input    := sum [ "=" anything ]            models often append the result; it is ignored
    sum      := product (("+" | "-") product)*
    product  := sign (("*" | "/" | "//" | "%") sign  |  "(" … ")")*      2(3+4) multiplies
    sign     := ("+" | "-")* power
    power    := atom [ ("**" | "^") sign ]      right-associative; -2^2 is -4
    atom     := ["$"] number ["%"]  |  "(" sum ")" ["%"]

``×``, ``·`` and a separate ``x`` multiply, ``÷`` divides, ``−`` and ``–`` subtract. Numbers may have thousands
separators (``1,000`` in groups of three) and decimals, which are exact. A ``%`` after an operand means percent unless
another operand follows it (``15%`` is 0.15, ``15 % 4`` is 3). Nothing is evaluated as Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from rlcore.episodes.tool import ToolError, tool

MAX_CHARACTERS = 500
MAX_NESTING = 40
MAX_BITS = 4096
"""Limit for numerators and denominators at every step of a computation, about 1200 decimal digits."""
MAX_EXPONENT = 10_000
MAX_RESULT_DIGITS = 100
SIGNIFICANT_DIGITS = 15
MAX_EXACT_PLACES = 20
"""Terminating decimals with more places are rounded like repeating decimals."""

_NUMBER = r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{_NUMBER})(?P<exponent>[eE][+-]?\d+)?|(?P<operator>\*\*|//|[-+*/%^()=$]))", re.ASCII
)
_SPELLINGS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "＋": "+", "∕": "/", "\u00a0": " "}
)
_TIMES = re.compile(r"(?<=[\d)%\s])[xX](?=[\s\d($.])")


@tool(timeout_s=5.0)
def calculator(expression: str) -> str:
    """Compute an arithmetic expression exactly.

    Args:
        expression: numbers with + - * / // % ** and parentheses, such as 48/2 + 3
    """
    return format_value(evaluate(expression))


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression. Raises `ToolError` with a message for the model if it is invalid."""
    if len(expression) > MAX_CHARACTERS:
        raise ToolError(f"the expression is longer than {MAX_CHARACTERS} characters")
    tokens = _tokens(expression)
    if not tokens:
        raise ToolError("the expression is empty")
    parser = _Parser(tokens)
    value = parser.sum(0)
    if parser.token is not None:
        raise ToolError(f"unexpected {parser.token.text!r} at position {parser.token.position + 1}")
    return value


def format_value(value: Fraction) -> str:
    """Format a number as an integer or a decimal. Repeating decimals are rounded to 15 significant digits."""
    if value.denominator == 1:
        text = str(value.numerator)
        if len(text) > MAX_RESULT_DIGITS:
            raise ToolError(f"the result has {len(text.lstrip('-'))} digits, more than {MAX_RESULT_DIGITS}")
        return text
    rest, places = value.denominator, 0
    while rest % 10 == 0:
        rest, places = rest // 10, places + 1
    twos = fives = 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places += max(twos, fives)
    if rest == 1 and places <= MAX_EXACT_PLACES:
        digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        if len(digits) <= MAX_RESULT_DIGITS:
            return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    context = Context(prec=SIGNIFICANT_DIGITS)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return format(rounded, "f") if -10 < rounded.adjusted() < 30 else str(rounded)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    position: int
    number: Fraction | None = None
    no_space_before: bool = False
    """Whether the token follows the previous one without a space."""


def _tokens(expression: str) -> list[_Token]:
    text = _TIMES.sub("*", expression.translate(_SPELLINGS))
    tokens: list[_Token] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            raise ToolError(f"cannot read {text[position:][:12]!r} at position {position + 1}")
        start = match.start("number") if match["number"] else match.start("operator")
        if match["operator"] == "=":
            break
        number = _number(match["number"], match["exponent"]) if match["number"] else None
        tokens.append(_Token(text[start : match.end()], start, number, no_space_before=start == match.start()))
        position = match.end()
    return tokens


def _number(digits: str, exponent: str | None) -> Fraction:
    power = int(exponent[1:]) if exponent and len(exponent) < 8 else 0
    if exponent and (len(exponent) >= 8 or abs(power) > MAX_EXPONENT):
        raise ToolError("a number is too large")
    digits = digits.replace(",", "")
    value = Fraction(digits + "0" if digits.endswith(".") else digits)
    return _bounded(value * Fraction(10) ** power) if abs(power) * 3.33 < MAX_BITS else _too_large()


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        _too_large()
    return value


def _too_large() -> Fraction:
    raise ToolError("a number is too large")


class _Parser:
    """Recursive descent parser. Each method returns the value of the expression that it parsed."""

    def __init__(self, tokens: list[_Token]):
        self.tokens = tokens
        self.index = 0

    @property
    def token(self) -> _Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def take(self, *operators: str) -> str | None:
        token = self.token
        if token is not None and token.number is None and token.text in operators:
            self.index += 1
            return token.text
        return None

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while operator := self.take("+", "-"):
            right = self.product(depth)
            value = _bounded(value + right if operator == "+" else value - right)
        return value

    def product(self, depth: int) -> Fraction:
        value = self.sign(depth)
        while True:
            if operator := self.take("*", "/", "//", "%"):
                value = _product(operator, value, self.sign(depth))
            elif self.token is not None and self.token.text == "(":
                value = _bounded(value * self.power(depth))
            else:
                return value

    def sign(self, depth: int) -> Fraction:
        negative = False
        while operator := self.take("+", "-"):
            negative ^= operator == "-"
        value = self.power(depth)
        return -value if negative else value

    def power(self, depth: int) -> Fraction:
        base = self.atom(depth)
        if self.take("**", "^"):
            if depth >= MAX_NESTING:
                raise ToolError("the expression is nested too deeply")
            return _power(base, self.sign(depth + 1))
        return base

    def atom(self, depth: int) -> Fraction:
        dollar = self.take("$")
        token = self.token
        if token is None:
            raise ToolError("the expression ends where a number is missing")
        if token.number is not None:
            self.index += 1
            return self.percent(token.number)
        if token.text == "(" and not dollar:
            if depth >= MAX_NESTING:
                raise ToolError("the expression is nested too deeply")
            self.index += 1
            value = self.sum(depth + 1)
            if not self.take(")"):
                raise ToolError("a closing parenthesis is missing")
            return self.percent(value)
        raise ToolError(f"unexpected {token.text!r} at position {token.position + 1} where a number is missing")

    def percent(self, value: Fraction) -> Fraction:
        token = self.token
        if token is None or token.text != "%":
            return value
        after = self.tokens[self.index + 1] if self.index + 1 < len(self.tokens) else None
        operand_follows = after is not None and (after.number is not None or after.text in {"(", "$"})
        signed = after is not None and after.text in {"+", "-"} and not token.no_space_before
        if operand_follows or signed:
            return value
        self.index += 1
        return value / 100


def _product(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "*":
        return _bounded(left * right)
    if right == 0:
        raise ToolError("division by zero")
    if operator == "/":
        return _bounded(left / right)
    quotient = left // right
    return _bounded(Fraction(quotient) if operator == "//" else left - quotient * right)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if base == 0 and exponent < 0:
        raise ToolError("division by zero")
    if abs(exponent.numerator) > MAX_EXPONENT or exponent.denominator > MAX_EXPONENT:
        if base in (0, 1):
            return base if exponent else Fraction(1)
        raise ToolError("an exponent is too large")
    if exponent.denominator != 1:
        return _root(base, exponent)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if bits * abs(exponent.numerator) > MAX_BITS:
        raise ToolError("a number is too large")
    return _bounded(base**exponent.numerator)


def _root(base: Fraction, exponent: Fraction) -> Fraction:
    """Powers with a fractional exponent, such as 2**0.5, correct to 30 significant digits."""
    if base < 0:
        raise ToolError("a root of a negative number is not a real number")
    if base == 0:
        return Fraction(0)
    context = Context(prec=40, Emax=MAX_EXPONENT, Emin=-MAX_EXPONENT)
    decimal_base = context.divide(Decimal(base.numerator), Decimal(base.denominator))
    power = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    try:
        value = context.power(decimal_base, power)
    except ArithmeticError:
        return _too_large()
    rounded = Context(prec=30).plus(value)
    return _bounded(Fraction(rounded)) if abs(rounded.adjusted()) * 3.33 < MAX_BITS else _too_large()
