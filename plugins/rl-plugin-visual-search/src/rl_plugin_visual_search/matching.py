"""Comparison of short answers by string: choices, numbers and texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Kind = Literal["choice", "number", "text"]
THRESHOLDS = tuple(Fraction(50 + 5 * step, 100) for step in range(10))
"""Of the mean relative accuracy: 0.50, 0.55, …, 0.95."""

_CHOICE = re.compile(r"[(\[]?([A-Za-z])[)\].:^]*(?:\s+(.*))?", re.DOTALL)
_LETTER = re.compile(r"[A-Z]")
_SIGN = "[-+−–]"
_NUMBER = re.compile(
    rf"(?:(?:(?<![^=:(])|(?<=[=:(][ ])|(?<=\bis[ ])){_SIGN}[ ]|(?<![\w.,/^]){_SIGN}?)(?<!\^{_SIGN})(?<!\^{{)"
    r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|[.,/^]\d)"
)
_ONLY_A_NUMBER = re.compile(rf"[$€£]?\s*({_SIGN}? ?[\d,.]+)\s*%?")
_ASIDE = re.compile(
    r"(\d[^()\d.,;:=]{0,40})\((?!\s*(?:or|maybe|perhaps)\b)(?=[^)]{0,200}[^\W\d_]{2})(?:[^()]|\([^()]*\)){0,200}\)"
)
"""Words in parentheses after a number, as in ``18 (2 dozen)``, but not an alternative."""
_EMPHASIS = re.compile(r"(?<![\w*`])(\*{1,3}|_{1,3}|`{1,3})(?=[^\s*_`])([^*`\n]{1,300}?)(?<=[^\s*_`])\1(?![\w*`])")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\{([^{}]*)\}")
MOST_DIGITS = 40
LONGEST = 10_000
"""Longer answers are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a comparison."""

    right: bool
    kind: Kind
    relative: float | None = None
    """The mean relative accuracy of a number, from 0 to 1; 0 without a number in the answer; None for other kinds."""


def compare(answer: str, accepted: Sequence[str], *, options: Sequence[str] = (), relative: bool = False) -> Verdict:
    """Compare an answer with the right ones, the first of which is the main one.

    - A choice, if there are options or the main one is a capital letter: the letter or the text of the right option,
      or both. A letter and a text that contradict each other are wrong.
    - A number, if the main one is a number: the only number of the answer, which must be equal.
    - A text otherwise: equal to one of the right ones, apart from case, punctuation, articles and white space. ``yes``
      and ``no`` may begin a longer answer.

    Args:
        answer: of the model
        accepted: at least one text
        options: texts of the options of a multiple choice
        relative: numbers are right with a mean relative accuracy of at least 0.5
    """
    answer = _plain(answer) if len(answer) <= LONGEST else ""
    accepted, options = list(map(_plain, accepted)), list(map(_plain, options))
    expected = accepted[0]
    if options or _LETTER.fullmatch(expected):
        return Verdict(right=_same_choice(answer, expected, options), kind="choice")
    wanted = _only_number(expected)
    if wanted is not None:
        found = the_number(answer)
        share = 0.0 if found is None else float(mean_relative_accuracy(found, wanted))
        right = found is not None and (share >= 0.5 if relative else found == wanted)
        return Verdict(right=right or _same_text(answer, accepted[1:]), kind="number", relative=share)
    return Verdict(right=_same_text(answer, accepted), kind="text")


def mean_relative_accuracy(found: Fraction, expected: Fraction) -> Fraction:
    """The fraction of the thresholds t for which the relative error is below 1 - t; for 0, whether both are equal."""
    if not expected:
        return Fraction(int(not found))
    error = abs(found - expected) / abs(expected)
    return Fraction(sum(error < 1 - threshold for threshold in THRESHOLDS), len(THRESHOLDS))


def the_number(text: str) -> Fraction | None:
    """The number of a text that has exactly one, apart from asides; thousands separators are allowed."""
    found = {_value(match[0]) for match in _NUMBER.finditer(_ASIDE.sub(r"\1", _plain(text[:LONGEST])))}
    return found.pop() if len(found) == 1 else None


def normalised(text: str) -> str:
    """Lower case without punctuation and articles, and with single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(" " if unicodedata.category(each).startswith("P") else each for each in folded)
    return " ".join(_ARTICLE.sub(" ", kept).split())


def _same_choice(answer: str, expected: str, options: Sequence[str]) -> bool:
    right = _chosen(expected, options)
    return right is not None and _chosen(answer, options) == right


def _chosen(text: str, options: Sequence[str]) -> str | None:
    """The letter of the option that a text names; None if it names none, or several."""
    texts = [normalised(option) for option in options]
    if (whole := normalised(text)) and texts.count(whole) == 1:
        return LETTERS[texts.index(whole)]
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    letter, rest = match[1].upper(), normalised(_plain(match[2] or ""))
    if options and LETTERS.index(letter) >= len(options):
        return None
    contradicts = rest and options and rest != texts[LETTERS.index(letter)]
    return None if contradicts else letter


def _same_text(answer: str, accepted: Sequence[str]) -> bool:
    given = normalised(answer)
    for text in map(normalised, accepted):
        if given and (given == text or (text in ("yes", "no") and given.split()[0] == text)):
            return True
    return False


def _plain(text: str) -> str:
    return _EMPHASIS.sub(r"\2", _LATEX_TEXT.sub(r"\1", text)).strip().strip("$").strip()


def _only_number(text: str) -> Fraction | None:
    match = _ONLY_A_NUMBER.fullmatch(text)
    return the_number(match[1]) if match is not None else None


def _value(literal: str) -> Fraction | None:
    if len(literal) > MOST_DIGITS:
        return None
    return Fraction(re.sub("[−–]", "-", re.sub("[, ]", "", literal)))


__all__ = ["Verdict", "compare", "mean_relative_accuracy", "normalised", "the_number"]
