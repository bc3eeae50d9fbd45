"""The format of an answer: one chain of thought followed by one answer, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = r"(?:(?!</?(?:think|answer)>).)"
"""A character that does not begin one of the four tags."""
_STRICT = re.compile(rf"\s*<think>({_TAG}+)</think>\s*<answer>({_TAG}+)</answer>\s*", re.DOTALL)
_THINK = re.compile(rf"<think>({_TAG}*)</think>", re.DOTALL)
_ANSWER = re.compile(rf"<answer>({_TAG}*)</answer>", re.DOTALL)
_OTHER_TAG = re.compile(r"</?[A-Za-z_][\w-]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The parts of a model's text."""

    think: str
    """The chain of thought; empty if there is none."""
    answer: str
    """The answer; empty if there is none, or if its block is not closed."""
    well_formed: bool
    """Whether the text is exactly one chain of thought and one answer, both with text, and without other tags."""


def parse(text: str) -> Answer:
    """Return the last complete answer and the last complete chain of thought before it.

    A tag that is mentioned earlier, for example in prose, does not begin the answer.
    """
    strict = _STRICT.fullmatch(text)
    if strict is not None and all(part.strip() for part in strict.groups()):
        think, answer = strict[1].strip(), strict[2].strip()
        return Answer(think=think, answer=answer, well_formed=not _OTHER_TAG.search(think + answer))
    answers = list(_ANSWER.finditer(text))
    end = answers[-1].start() if answers else len(text)
    thoughts = _THINK.findall(text, 0, end)
    return Answer(
        think=thoughts[-1].strip() if thoughts else "",
        answer=answers[-1][1].strip() if answers else "",
        well_formed=False,
    )
