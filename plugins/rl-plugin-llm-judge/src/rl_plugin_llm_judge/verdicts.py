"""Parse the verdict in a reply of the judge.

A reply may contain any text before and after its verdict. The text after the last ``</think>`` is searched for
*markers*, such as ``Judgement:``. A verdict is a marker at the beginning of a line with a value, which may be followed
by a remark after punctuation. A quoted marker elsewhere is a mention, as in a quotation of the answer that is judged.
Without a marker, the whole text must be the verdict. A reply that could mean something else is unclear, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Form = Literal["binary", "true-false", "graded"]

_DECORATION = r"[\s*_`\"'>$\[({]*"
_AFTER = r"[\s*_`\"'}$.!\])]*"
_BEGINNING = re.compile(
    r"(?!\s*>)[\W_]*(?:\d{1,2}[.)][\W_]*)?(?:(?:final|my|the|overall|so|thus|therefore|hence)[\W_]+){0,3}",
    re.IGNORECASE,
)
"""What may precede the marker of a verdict in its line. A line that begins with ``>`` is quoted."""
_QUOTES = "\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"
LONGEST_BEGINNING = 100
_REMARK = re.compile(_AFTER + "\\s*(?:[-.,;:(\N{EN DASH}\N{EM DASH}]|(?:because|since|as)\\b|$)", re.IGNORECASE)
"""What may follow a value in its line."""
_BOX = r"(?:\\boxed\{\s*|\\text\{\s*)*"
_VALUES: Mapping[Form, str] = {
    "binary": r"[01](?:\.0{1,3})?(?!\w|[.,:/]\w|\s*[%/])",
    "true-false": r"(?:true|false)(?!\w)",
    "graded": r"(?:[01](?:\.[0-9]{1,6})?|\.[0-9]{1,6})(?:\s?/\s?1(?:\.0{1,3})?)?(?!\w|[.,:/]\w|\s*[%/])",
}
_OTHERS: Mapping[Form, str] = {
    "binary": r"(?<![\w.])[01](?![\w])",
    "true-false": r"\b(?:true|false|not)\b",
    "graded": r"[0-9]",
}
"""What makes a verdict unclear in the rest of its line."""
_DENIAL = re.compile(r"\b(?:incorrect|wrong|not (?:really|quite|correct|right|equivalent|the same))\b", re.IGNORECASE)
"""What makes a positive verdict unclear in the rest of its line."""


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
        markers = list(self._marker.finditer(text))
        if not markers:
            if (found := self._alone.fullmatch(text)) is None:
                raise UnclearVerdict(f"there is no {self.marker!r} with a colon")
            return self._number(found["value"])
        verdict: float | None = None
        problem = f"there is no {self.marker!r} at the beginning of a line"
        for marker in markers:
            before = text[text.rfind("\n", 0, marker.start()) + 1 : marker.start()]
            if len(before) <= LONGEST_BEGINNING and _BEGINNING.fullmatch(before):
                line = self._value.match(text, marker.end())
                if line is None or not _REMARK.match(line["rest"]):
                    verdict, problem = None, f"the last {self.marker!r} has no value"
                elif self._other.search(line["rest"]):
                    verdict, problem = None, f"the last {self.marker!r} has more than one value"
                elif (value := self._number(line["value"])) == 1.0 and _DENIAL.search(line["rest"]):
                    verdict, problem = None, f"the last {self.marker!r} is positive, and its remark is not"
                elif verdict not in (None, value):
                    raise UnclearVerdict("there are two verdicts, which differ")
                else:
                    verdict = value
            elif before.rstrip()[-1:] not in _QUOTES:
                verdict, problem = None, f"the last {self.marker!r} is not at the beginning of a line"
        if verdict is None:
            raise UnclearVerdict(problem)
        return verdict

    def _number(self, value: str) -> float:
        if self.form == "true-false":
            return float(value.lower() == "true")
        number = float(value.partition("/")[0])
        if not 0.0 <= number <= 1.0:
            raise UnclearVerdict("the value is greater than 1")
        return number

    @cached_property
    def _marker(self) -> re.Pattern[str]:
        words = r"\s+".join(map(re.escape, self.marker.split()))
        words = words.replace("Judgement", "Judge?ment").replace("judgement", "judge?ment")
        return re.compile(rf"(?<!\w){words}[*_`\"']*(?:\s*[:=]|[ \t]*\n)", re.IGNORECASE)

    @cached_property
    def _value(self) -> re.Pattern[str]:
        return re.compile(rf"{_DECORATION}{_BOX}(?P<value>{_VALUES[self.form]})(?P<rest>[^\n]*)", re.IGNORECASE)

    @cached_property
    def _alone(self) -> re.Pattern[str]:
        return re.compile(rf"{_DECORATION}{_BOX}(?P<value>{_VALUES[self.form]}){_AFTER}", re.IGNORECASE)

    @cached_property
    def _other(self) -> re.Pattern[str]:
        return re.compile(_OTHERS[self.form], re.IGNORECASE)
