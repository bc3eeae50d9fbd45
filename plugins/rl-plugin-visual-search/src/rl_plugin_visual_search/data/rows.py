"""Questions about pictures, as the plugin sees them, from whichever file they come."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from rlcore import DataError
from rlcore.data.row_images import ImageReader
from rlcore.plugin_calls import value_text
from rlcore.types import Role

ROLES = ("system", "user")
LONGEST_TEXT = 100_000
MOST_OPTIONS = 26
_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")
"""A lone surrogate, which JSON can represent and UTF-8 cannot."""


class Reason(StrEnum):
    """Why a row cannot be used."""

    INVALID = "invalid row"
    QUESTION = "no question"
    ANSWER = "no answer"
    PICTURE = "missing or unreadable picture"
    VIDEO = "a video"
    CONVERSATION = "invalid conversation"
    TURN = "a turn without code or answer"


class UnusableRow(Exception):
    """A row that cannot be used."""

    def __init__(self, reason: Reason, found: str) -> None:
        super().__init__(f"{reason}: {found}")
        self.reason, self.found = reason, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question about one or several pictures."""

    id: str
    """Unique in its split."""
    question: str
    answer: str
    images: tuple[bytes, ...]
    """Encoded pictures, in the order of ``image_clue_0``, ``image_clue_1``, …."""
    aliases: tuple[str, ...] = ()
    """Further texts that are right."""
    options: tuple[str, ...] = ()
    """The texts of the options of a multiple choice; empty for a free answer. ``answer`` is then a letter or a text of
    them, or both."""
    listed: bool = False
    """Whether the text of the question lists the options."""
    data_source: str = ""
    """The data set that the question comes from."""
    category: str = ""
    """The type of the question, by which results are grouped."""
    prompt: tuple[tuple[Role, str], ...] = ()
    """The messages of the row's own prompt, in which ``<image>`` is the place of a picture; empty without one."""


def row_of(value: object, id: str, reader: ImageReader) -> Row:
    """Read a row of any of the published schemas.

    =============  =====================================================================================
    question       ``extra_info.question``, ``question`` or ``text``
    answer         ``reward_model.ground_truth``, ``extra_info.answer``, ``answer`` or ``label``; a list has
                   further answers that are right. With ``options`` and without an answer, the first option
    pictures       ``images`` or ``image`` (bytes or path), ``image_path`` or ``mm_hint.hint_path``
    category       ``category``, ``question_type`` or ``ability``
    =============  =====================================================================================

    Args:
        value: the row, as read from a file
        id: of the row
        reader: reads the pictures

    Raises:
        UnusableRow: a field or a picture is missing or damaged.
    """
    if not isinstance(value, Mapping):
        raise UnusableRow(Reason.INVALID, f"{value_text(value)} instead of an object")
    extra, reward, hint = (_object(value, name) for name in ("extra_info", "reward_model", "mm_hint"))
    question = _first_text((extra, "question"), (value, "question"), (value, "text"))
    if not question:
        raise UnusableRow(Reason.QUESTION, _named(value))
    options = tuple(_texts(value.get("options"), "options"))
    if len(options) > MOST_OPTIONS:
        raise UnusableRow(Reason.INVALID, f"{len(options)} options, the limit is {MOST_OPTIONS}")
    answers = _answers(value, extra, reward) or list(options[:1])
    if not answers:
        raise UnusableRow(Reason.ANSWER, _named(value))
    return Row(
        id=id,
        question=question,
        answer=answers[0],
        aliases=tuple(dict.fromkeys([*answers[1:], *_texts(value.get("aliases"), "aliases")])),
        options=options,
        images=_pictures(value, hint, reader),
        data_source=_first_text((value, "data_source")),
        category=_first_text((value, "category"), (value, "question_type"), (value, "ability")),
        prompt=_prompt(value.get("prompt")),
    )


def _named(row: Mapping[Any, Any]) -> str:
    return f"the fields {', '.join(map(str, row))}"[:200] if row else "no fields"


def _object(row: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UnusableRow(Reason.INVALID, f"{name} is {value_text(value)} instead of an object")
    return value


def _first_text(*places: tuple[Mapping[Any, Any], str]) -> str:
    for where, name in places:
        value = where.get(name)
        if isinstance(value, str) and value.strip():
            return _bounded(value.strip(), name)
    return ""


def _answers(row: Mapping[Any, Any], extra: Mapping[Any, Any], reward: Mapping[Any, Any]) -> list[str]:
    """The right answers, the main one first."""
    for where, name in ((reward, "ground_truth"), (extra, "answer"), (row, "answer"), (row, "label")):
        found = [text for text in _texts(where.get(name), name) if text]
        if found:
            return found
    return []


def _texts(value: object, name: str) -> list[str]:
    """A text, a number, or a list of them, as texts."""
    listed = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    for each in listed:
        if not isinstance(each, (str, int, float)) or (isinstance(each, float) and not math.isfinite(each)):
            raise UnusableRow(Reason.INVALID, f"{name} contains {value_text(each)} instead of a text or a number")
    return [_bounded(str(each).strip(), name) for each in listed]


def _bounded(text: str, name: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise UnusableRow(Reason.INVALID, f"{name} has {len(text):,} characters, the limit is {LONGEST_TEXT:,}")
    if half := _HALF_OF_A_PAIR.search(text):
        found = f"{name} contains {half[0]!r} at character {half.start()}, which is no character"
        raise UnusableRow(Reason.INVALID, found)
    return text


def _pictures(row: Mapping[Any, Any], hint: Mapping[Any, Any], reader: ImageReader) -> tuple[bytes, ...]:
    if row.get("video_path") or row.get("videos") or hint.get("hint_type") == "video":
        raise UnusableRow(Reason.VIDEO, "only pictures are supported")
    places = ((row, "images"), (row, "image"), (row, "image_path"), (hint, "hint_path"))
    given = next((where[name] for where, name in places if where.get(name) not in (None, "", [])), None)
    sources: Sequence[object] = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    if not sources:
        raise UnusableRow(Reason.PICTURE, "images, image, image_path and mm_hint.hint_path are missing or empty")
    try:
        parts = [reader.read(source) for source in sources]
    except DataError as error:
        raise UnusableRow(Reason.PICTURE, ": ".join(filter(None, (error.message, error.found)))) from None
    return tuple(data for part in parts for data in reader.bytes_of([part.sha256]))


def _prompt(value: object) -> tuple[tuple[Role, str], ...]:
    """The messages of a prompt, or none if there is none."""
    if isinstance(value, str) and value.strip():
        return (("user", _bounded(value, "prompt")),)
    if not isinstance(value, (list, tuple)):
        return ()
    messages: list[tuple[Role, str]] = []
    for entry in value:
        role, content = (entry.get("role"), entry.get("content")) if isinstance(entry, Mapping) else (None, None)
        if role not in ROLES or not isinstance(content, str):
            found = f"prompt has a message of role {role!r} with {value_text(content)}"
            raise UnusableRow(Reason.INVALID, f"{found}; texts of system and user are supported")
        messages.append((cast(Role, role), _bounded(content, "prompt")))
    return tuple(messages)


__all__ = ["Reason", "Row", "UnusableRow", "row_of"]
