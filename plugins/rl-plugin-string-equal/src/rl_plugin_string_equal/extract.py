"""Extract the number that a text gives as its answer."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from rl_plugin_string_equal.numbers import MINUS, SIGN, Literal, last_literal, literal_at, literals, plain

MAXIMUM_CHARACTERS = 100_000
"""Only the end of a longer text is searched."""

_BRACES = re.compile(r"\\[{}\\]|(?P<box>\\(?:boxed|fbox)[ ]?\{)|(?P<open>\{)|(?P<close>\})")
_HASHES = re.compile(r"####[ \t]{0,4}")
_ANSWER_IS = re.compile(r"\banswer[ \t*_]{0,4}(?:is|are|was|=|:)[ \t]{0,4}:?", re.IGNORECASE)
_DECORATION = re.compile(r"(?:[\s*_`\"'(\[{$£€¥≈~]|\\[(\[$]){0,12}(?:[A-Za-z]{1,2} ?= ?)?")
_HEADING = re.compile(r"[.):]\s+\S")
_OPERATOR = re.compile(rf"[ ]?(?:(?P<equals>=)|[*/×÷]|{SIGN}|\\(?:times|cdot|div))[ ]?[$£€¥]?")
_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|left|right|quad|[ ,;:()\[\]])")
_UNIT = r"(?:[ ](?!(?:is|are|was|were|and|or|so|then|x|times)\b)[A-Za-z°€£¥][\w/^'-]{0,20}){0,3}"
_IN_PARENTHESES = r"\((?:[^()\n]|\([^()\n]{0,200}\)){0,200}\)"
_ASIDE = re.compile(
    rf"(?<=[0-9%])(?:[ ]{{1,3}}|((?:\$|\\\))?{_UNIT})(?:[ ]{{1,3}}|\s{{0,3}}\n|[.!]\s{{0,3}}\n\n)"
    rf"(?=\([^)]{{0,200}}[^\W\d_])){_IN_PARENTHESES}"
)
_EXPRESSION = re.compile(rf"[\\+*√π±∞]|[{MINUS}]\s")
_FIRST_SIGN = re.compile(rf"\A\s*({SIGN})\s+(?=[$£€¥.0-9])")
_ITEM = re.compile(rf"\s*[{MINUS}][ ]+(?=[^\n]*\Z)")


def stated_number(response: str) -> Fraction | None:
    r"""The number that a response gives as its answer; None if there is no valid one.

    The text after the last ``</think>``, or the whole response, is searched. The first match in this list is used: the
    last balanced ``\boxed{…}``; the last ``#### x``; the last ``answer is x`` (``answer: x``, ``answer = x``); the last
    number, but not one in parentheses after another, as in ``24 eggs (2 dozen)``.
    """
    response = response[-MAXIMUM_CHARACTERS:].rsplit("</think>", 1)[-1]
    box = last_box(response)
    if box is not None:
        return single_number(box)
    text = plain(response)
    for marker in (_HASHES, _ANSWER_IS):
        for match in reversed(list(marker.finditer(text))):
            found = _leading(text, match.end())
            if found is None or (marker is _HASHES and _HEADING.match(text, found.end)):
                continue  # followed by words, or a numbered heading: not an answer
            return found.value
    text = _ASIDE.sub(r"\1", text).strip()
    last, item = last_literal(text), _ITEM.match(text)
    if last is None or (item and item.end() == last.start):  # "- 3" may be an item of a list
        return None
    return last.value


def expected_number(answer: object) -> Fraction | None:
    r"""The number in a task's answer field, which is an int, a finite float, or a text.

    In a text, the part after the last ``####``, the content of the last ``\boxed{…}``, or the whole text must be one
    number. Units are allowed.
    """
    if isinstance(answer, bool):
        return None
    if isinstance(answer, int):
        return Fraction(answer)
    if isinstance(answer, float):
        return Fraction(repr(answer)) if math.isfinite(answer) else None
    if isinstance(answer, str):
        end = answer[-MAXIMUM_CHARACTERS:]
        text = end.rsplit("####", 1)[-1] if "####" in end else last_box(end)
        return single_number(end if text is None else text)
    return None


def single_number(text: str) -> Fraction | None:
    """The only number in a text; None if there is not exactly one. Units are allowed, and ``x =`` is ignored."""
    text = _FIRST_SIGN.sub(r"\1", plain(text).rsplit("=", 1)[-1])
    found = list(literals(text))
    if len(found) != 1:
        return None
    rest = _WRAPPER.sub(" ", text[: found[0].start] + " " + text[found[0].end :])
    return None if _EXPRESSION.search(rest) else found[0].value


def last_box(text: str) -> str | None:
    r"""The content of the balanced ``\boxed{…}`` (or ``\fbox``) that starts last; None if there is none."""
    opened: list[int | None] = []
    best: tuple[int, int] | None = None
    for match in _BRACES.finditer(text):
        if match["box"]:
            opened.append(match.end())
        elif match["open"]:
            opened.append(None)
        elif match["close"] and opened:
            start = opened.pop()
            if start is not None and (best is None or start > best[0]):
                best = (start, match.start())
    return text[best[0] : best[1]] if best else None


def _leading(text: str, position: int) -> Literal | None:
    """The number at ``position`` after optional decoration; for ``5 + 3 = 8`` the 8; None if there is none.

    A calculation without a result is a literal without a value.
    """
    decoration = _DECORATION.match(text, position)
    start = decoration.end() if decoration else position
    found = literal_at(text, start)
    if found is None:
        return None
    end, value = found.end, found.value
    while operator := _OPERATOR.match(text, end):
        following = literal_at(text, operator.end())
        if following is None:
            break
        end, value = following.end, following.value if operator["equals"] else None
    return Literal(start=start, end=end, value=value)
