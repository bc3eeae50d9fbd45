"""Parse the verdict in a reply of the judge.

The text after the last ``</think>`` is searched for lines with a *marker*, such as ``Judgement:``, and a value. A value
above 0 must be alone on its line, without quotation marks around both, and in the first or last line of the reply:
elsewhere, it may be quoted from the answer that is judged. After the first line, nothing may deny it. A value of 0 may
have a remark. Without a marker, the whole text must be the value. A reply that could mean something else is unclear,
never wrong: the judge is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Form = Literal["binary", "true-false", "graded"]

_QUOTES = "\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"
_MARK = rf"(?:[^\w\n>{_QUOTES}]|_)"
_BEFORE = rf"{_MARK}*(?:\d{{1,2}}[.)]{_MARK}*)?(?:(?:final|my|the|overall|so|thus|therefore|hence){_MARK}+){{0,3}}"
"""What may precede the marker of a verdict in its line. Text after ``>`` is quoted."""
_OPEN, _CLOSE = r"\s*_$\[({", r"\s*_}$.!\])"
_QUOTE = "[\"'`]?"
_SEPARATOR = r"[*_]*(?:\s*[:=]|[ \t]*\n)"
_BOX = r"(?:\\boxed\{\s*|\\text\{\s*)*"
_END = re.compile(f"[{_CLOSE}]*")
_WRAPPED = re.compile(r"\s*([\"'`]{1,3})([^\"'`]*)\1\s*")
_REMARK = re.compile(f"[{_CLOSE}]*(?:[-.,;:(\N{EN DASH}\N{EM DASH}]|(?:because|since|as)\\b)", re.IGNORECASE)
"""What may follow a verdict of 0 in its line."""
_DOUBT = re.compile(
    r"\A\s*[a-z]|(?i:\b(?:no|not|nor|never|but|however|unless|wait|actually|instead|incorrect|wrong|mistak\w+"
    r"|differ\w*|disagree\w*|ignor\w+|inject\w+|quot\w+|claim\w*)\b|n['\N{RIGHT SINGLE QUOTATION MARK}]t\b)"
)
"""What makes a verdict unclear when it follows: the rest of a sentence, or words of a denial."""
_VALUES: Mapping[Form, str] = {
    "binary": r"[01](?:\.0{1,3})?(?!\w|[.,:/]\w|\s*[%/])",
    "true-false": r"(?:true|false)(?!\w)",
    "graded": r"(?:[01](?:\.[0-9]{1,6})?|\.[0-9]{1,6})(?:\s?/\s?1(?:\.0{1,3})?)?(?!\w|[.,:/]\w|\s*[%/])",
}


class UnclearVerdict(Exception):
    """A reply without a clear verdict."""


@dataclass(frozen=True)
class VerdictParser:
    """Parses verdicts of one form.

    Args:
        form: ``binary`` is 1 or 0, ``true-false`` is a word, ``graded`` a number from 0 to 1
        marker: the words before the verdict, without the colon
    """

    form: Form
    marker: str

    def parse(self, reply: str) -> float:
        """The verdict as a number from 0 to 1.

        Raises:
            UnclearVerdict: there is none, or more than one.
        """
        _, thought, text = reply.rpartition("</think>")
        if not thought and "<think>" in reply:
            raise UnclearVerdict("the reasoning has no end")
        if wrapped := _WRAPPED.fullmatch(text):
            text = wrapped[2]
        if alone := self._alone.fullmatch(text):
            return self._number(alone["value"])
        found = []
        for line in self._line.finditer(text):
            value, remark = self._number(line["value"]), line["remark"]
            zero = not value and _REMARK.match(remark) and not self._value.search(remark)
            if zero or _END.fullmatch(remark):
                found.append((value, line))
        if not found:
            raise UnclearVerdict(f"there is no {self.marker!r} with a value alone on its line")
        if len({value for value, _ in found}) > 1:
            raise UnclearVerdict("there are two verdicts, which differ")
        value, line = found[-1]
        after = text[line.end() :]
        if self._mention.search(after):
            raise UnclearVerdict(f"the last {self.marker!r} has no value alone on its line")
        if value and not _END.fullmatch(after):
            if text[: line.start()].strip():
                raise UnclearVerdict(f"the last {self.marker!r} is positive, and not in the first or last line")
            if _DOUBT.search(after) or self._value.search(after):
                raise UnclearVerdict(f"the last {self.marker!r} is positive, and what follows may deny it")
        return value

    def _number(self, value: str) -> float:
        if self.form == "true-false":
            return float(value.lower() == "true")
        number = float(value.partition("/")[0])
        if not 0.0 <= number <= 1.0:
            raise UnclearVerdict("the value is greater than 1")
        return number

    @cached_property
    def _marker(self) -> str:
        words = r"\s+".join(map(re.escape, self.marker.split()))
        return words.replace("Judgement", "Judge?ment").replace("judgement", "judge?ment")

    @cached_property
    def _mention(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w{_QUOTES}]){self._marker}{_SEPARATOR}", re.IGNORECASE)

    @cached_property
    def _value(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w.]){_VALUES[self.form]}", re.IGNORECASE)

    @cached_property
    def _alone(self) -> re.Pattern[str]:
        return re.compile(rf"[{_OPEN}]*{_BOX}(?P<value>{_VALUES[self.form]})[{_CLOSE}]*", re.IGNORECASE)

    @cached_property
    def _line(self) -> re.Pattern[str]:
        marker = rf"(?P<key>{_QUOTE}){self._marker}(?P=key){_SEPARATOR}"
        value = rf"[{_OPEN}]*(?P<quote>{_QUOTE}){_BOX}(?P<value>{_VALUES[self.form]})(?P=quote)"
        line = rf"^{_BEFORE}{marker}{value}(?P<remark>[^\n]*)"
        return re.compile(line, re.IGNORECASE | re.MULTILINE)
