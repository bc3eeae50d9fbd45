"""Parse numbers in text exactly.

A *literal* is a part of a text that denotes one number, with sign, currency sign, thousands separators, decimals, a
mixed number, a fraction or powers of ten. Some literals are invalid (``1,00``, ``1/0``, ``1e999``, ``2^3``). They are
still literals, so that no part of them is parsed as a number. All functions take time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAXIMUM_DIGITS = 100
"""A longer run of digits is invalid."""
MAXIMUM_EXPONENT = 100
"""A power of ten with a larger absolute exponent is invalid."""

MINUS = "-\N{MINUS SIGN}\N{EN DASH}"
SIGN = rf"[{MINUS}+]"
_BETWEEN = "_,'\N{RIGHT SINGLE QUOTATION MARK}\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
_SPACED = rf"[0-9]{{1,3}}(?=[ ][0-9]{{3}}(?![0-9]))(?:[ .:{_BETWEEN}][0-9]+)*"
_RUN = rf"(?:{_SPACED}|[0-9]+(?:[.:{_BETWEEN}][0-9]+|[ ]0[0-9]+)*|\.[0-9]+)"
_SCALES = {"thousand": "3", "million": "6", "billion": "9", "trillion": "12"}
_LITERAL = re.compile(
    rf"""
    (?: (?<![0-9A-Za-z_)\]}}^])(?<!\^\{{)(?P<sign>{SIGN})              # a sign after a digit or a name is an operator
      | (?:(?<=[=≈<>≤≥:,#([{{$])|(?<=[=≈<>≤≥:,#][ ])|(?<=\bis[ ])|(?<=\b(?:are|was)[ ]))(?P<apart>{SIGN})[ ]{{1,2}}
      | (?<![0-9A-Za-z_^])(?<!\^\{{)(?<!\^{SIGN})(?<!\^\{{{SIGN}) )   # x2, m^2 and s^{{-1}} contain no number
    [$£€¥]?
    (?:(?P<whole>[0-9]+)[ ]{{1,3}}(?=[0-9]+/[0-9]))?
    (?P<run>{_RUN})
    (?P<over>(?:[ ]?/[ ]?{SIGN}?{_RUN})*)
    (?: (?P<unclear>[ ]?k|[KMB])(?![0-9A-Za-z_])  # 5k is 5000, or 5 times k
      | (?:[ ]|\\[ ,;:]){{0,3}}(?:\\[a-z]{{4,6}}\{{[ ]?)?(?P<scale>(?i:{"|".join(_SCALES)}))s?(?![0-9A-Za-z_])
      | [eE](?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z_])
      | [ ]{{0,3}}(?:\\times|\\cdot|[×·*xX])[ ]{{0,3}}10[ ]?\^[ ]?\{{?(?P<power_of_ten>{SIGN}?[0-9]+)\}}? )?
    (?P<power>(?:[ ]?\^[ ]?|[ ]\*\*[ ]?|\*\*(?![ ]))[{{(]?{SIGN}?[0-9.]*[0-9])?  # "5** (" ends bold text
    """,
    re.VERBOSE,
)
_GROUPED = re.compile(rf"[0-9]{{1,3}}(?:([ {_BETWEEN}])[0-9]{{3}})(?:\1[0-9]{{3}})*(?:\.[0-9]+)?")
_TWO_NUMBERS = re.compile(r"(?<![0-9.,])(?<![0-9] )[0-9]{1,3} [1-9][0-9]{2}(?:\.[0-9]+)?[ \\*_{-]{0,4}[A-Za-z]")
"""``5 100 ml`` may be two numbers; ``5 000 ml``, ``1 234 567 ml`` and ``5 100.`` are one."""
_PLAIN = re.compile(r"[0-9]*(?:\.[0-9]+)?")

_PART = r"[ ]?(?:([0-9])|\{([^{}]{1,64})\})"
_FRACTION = re.compile(rf"([0-9]?)[ ]?\\[dtc]?frac{_PART}{_PART}")
_EMPHASIS = re.compile(r"(?<![0-9A-Za-z*_)\]}])(\*{1,3}|_{1,3})(?=[^\s*_])([^*_\n]{1,300})(?<=\S)\1(?![0-9A-Za-z*_])")
"""Bold and italic text in Markdown. A marker after a number is an operator, as in ``2**3``."""
_NUMBER_ONLY = re.compile(rf"\s*{SIGN}?{_RUN}\s*")
_DEGREES = re.compile(r"\^[ ]?(?:\\circ|\{[ ]?\\circ[ ]?\})|°")
_DIGIT_SPACE = re.compile(r"(?<=[0-9])\\[,;:](?=[0-9]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A number in a text; ``value`` is None if it is invalid."""

    start: int
    end: int
    value: Fraction | None


def plain(text: str) -> str:
    r"""Convert LaTeX and Markdown to plain text: ``\frac{a}{b}``, ``1{,}000``, ``1\,000``, degrees, ``**18**``."""
    text = _EMPHASIS.sub(r"\2", text)
    text = text.replace("{,}", ",").replace("\\!", "").replace("\\$", "$").replace("\\%", "%")
    text = _DEGREES.sub("", _DIGIT_SPACE.sub("", text))
    return _FRACTION.sub(_plain_fraction, text)


def literals(text: str) -> Iterator[Literal]:
    """All literals of a `plain` text, in order."""
    for match in _LITERAL.finditer(text):
        yield Literal(start=match.start(), end=match.end(), value=_value(match, text))


def last_literal(text: str) -> Literal | None:
    """The last literal of a `plain` text. Other literals are not evaluated."""
    matches = deque(_LITERAL.finditer(text), maxlen=1)
    return Literal(start=matches[0].start(), end=matches[0].end(), value=_value(matches[0], text)) if matches else None


def literal_at(text: str, position: int) -> Literal | None:
    """The literal that starts exactly at ``position`` of a `plain` text."""
    match = _LITERAL.match(text, position)
    return Literal(start=position, end=match.end(), value=_value(match, text)) if match else None


def _plain_fraction(match: re.Match[str]) -> str:
    digit_before, *parts = match.groups()
    over, under = (part for part in parts if part is not None)
    if not (_NUMBER_ONLY.fullmatch(over) and _NUMBER_ONLY.fullmatch(under)):
        return digit_before + r"\frac"  # not a fraction of two numbers
    return f"{digit_before} {over.strip()}/{under.strip()}" if digit_before else f"{over.strip()}/{under.strip()}"


def _value(match: re.Match[str], text: str) -> Fraction | None:
    following = text[match.end() : match.end() + 1]
    if match["power"] or match["unclear"] or (following.isnumeric() and not following.isascii()):  # 2^3, 2k, 5², 3½
        return None
    if _TWO_NUMBERS.search(text, match.start("run"), match.end() + 5):
        return None
    value = _run_value(match["run"])
    over = match["over"].split("/")[1:]
    if len(over) > 1:  # a/b/c is an expression or a date
        return None
    if over:
        under = _signed(over[0].strip())
        if value is None or not under:
            return None
        value /= under
    if match["whole"]:
        whole = _run_value(match["whole"])
        if value is None or whole is None or not 0 <= value < 1:
            return None
        value += whole
    exponent = match["exponent"] or match["power_of_ten"] or _SCALES.get((match["scale"] or "").lower())
    if exponent:
        scale = _power_of_ten(exponent)
        if value is None or scale is None:
            return None
        value *= scale
    if value is None:
        return None
    return -value if (match["sign"] or match["apart"] or "+") in MINUS else value


def _signed(text: str) -> Fraction | None:
    value = _run_value(text.lstrip("+" + MINUS))
    return -value if value is not None and text[0] in MINUS else value


def _run_value(run: str) -> Fraction | None:
    """The value of digits with an optional decimal point and valid thousands separators."""
    if len(run) > MAXIMUM_DIGITS or not (_PLAIN.fullmatch(run) or _GROUPED.fullmatch(run)):
        return None
    digits = "".join(character for character in run if character in "0123456789.")
    return Fraction("0" + digits)


def _power_of_ten(exponent: str) -> Fraction | None:
    if len(exponent) > 5:
        return None
    power = int(re.sub(f"[{MINUS}]", "-", exponent))
    return Fraction(10) ** power if abs(power) <= MAXIMUM_EXPONENT else None
