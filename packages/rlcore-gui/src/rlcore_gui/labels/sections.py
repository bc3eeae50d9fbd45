"""The three sections of a teacher's answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore_gui.answers import ACTION, FRAME, PROGRESS, REASONING, SUMMARY, closing, opening

SECTIONS = (PROGRESS, REASONING, SUMMARY)
"""What the teacher writes, in this order."""
KEYS = ("progress_estimation", "decision_reasoning", "history_summary")
"""The keys of the sections in a file of labels."""
_TAGS = tuple(tag(name).casefold() for name in (*SECTIONS, ACTION, FRAME) for tag in (opening, closing))
_NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Unicode categories of characters that are no text: control, unassigned and private ones, and lone surrogates."""
LONGEST = 2000
"""Limit of a section in characters. One or two sentences have a tenth of it."""


class UnreadableSections(ValueError):
    """An answer that is not exactly the three sections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabels:
    """What a teacher wrote about one step, each part on one line."""

    progress: str
    reasoning: str
    summary: str
    """The memory of the next step."""

    def as_json(self) -> dict[str, str]:
        """The labels as in a file."""
        return dict(zip(KEYS, (self.progress, self.reasoning, self.summary), strict=True))

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> StepLabels:
        """The labels of a file.

        Raises:
            ValueError: a part is missing or not text.
        """
        texts = [plain.get(key) for key in KEYS]
        for key, text in zip(KEYS, texts, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{key} is missing or not text")
        progress, reasoning, summary = map(str, texts)
        return cls(progress=progress, reasoning=reasoning, summary=summary)


def read_sections(text: str) -> StepLabels:
    """The sections of an answer that has each of them once, in order, and nothing else.

    Raises:
        UnreadableSections: the answer is anything else; the message is a sentence for the teacher.
    """
    tags = [(opening(name), closing(name)) for name in SECTIONS]
    for begin, end in tags:
        if text.count(begin) != 1 or text.count(end) != 1:
            raise UnreadableSections(f"the answer must contain {begin} and {end} exactly once")
    places = [text.index(tag) for pair in tags for tag in pair]
    if places != sorted(places):
        raise UnreadableSections(f"the sections must be in the order {', '.join(SECTIONS)}")
    contents, place = [], 0
    for name, (begin, end) in zip(SECTIONS, tags, strict=True):
        start, stop = text.index(begin), text.index(end)
        if text[place:start].strip():
            raise UnreadableSections("there must be no text outside of the sections")
        contents.append(_content(text[start + len(begin) : stop], name))
        place = stop + len(end)
    if text[place:].strip():
        raise UnreadableSections("there must be no text outside of the sections")
    progress, reasoning, summary = contents
    return StepLabels(progress=progress, reasoning=reasoning, summary=summary)


def _content(text: str, name: str) -> str:
    content = " ".join(text.split())
    if not content:
        raise UnreadableSections(f"the section {name} must not be empty")
    if len(content) > LONGEST:
        raise UnreadableSections(f"the section {name} must have one or two sentences")
    if any(tag in content.casefold() for tag in _TAGS):
        raise UnreadableSections(f"the section {name} must not contain other tags")
    if any(unicodedata.category(character) in _NO_TEXT for character in content) or "\ufffd" in content:
        raise UnreadableSections(f"the section {name} must contain only text")
    return content
