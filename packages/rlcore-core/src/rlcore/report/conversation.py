"""Messages of a trajectory as the parts that the template shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlcore.plugin_calls import value_text
from rlcore.report.answers import code_of, parts_of
from rlcore.report.notes import Mark, TurnNote
from rlcore.report.pictures import Album
from rlcore.types import ImagePart, Message, TextPart, thaw

Part = tuple[str, Any]
"""A kind of the template, and what it shows."""
LONGEST_REPEATED = 160
"""An answer of at most this length is not repeated below the first line of a trajectory."""
MOST_IMAGES = 16
"""Number of images that are shown of a message."""
NO_NOTE = TurnNote()


def messages(
    spoken: Iterable[Message],
    images: Mapping[str, bytes],
    album: Album,
    *,
    answer: str = "",
    note: TurnNote = NO_NOTE,
) -> list[dict[str, Any]]:
    """Messages in order. The marks of the note are on their last image, and its short text replaces their last text.

    A text that only repeats the answer, which is shown above them, is left out.
    """
    spoken = list(spoken)
    marked = max((index for index, message in enumerate(spoken) if message.images), default=None)
    asking = max((index for index, message in enumerate(spoken) if message.role == "user"), default=None)
    found = []
    for i, one in enumerate(spoken):
        if one.role == "assistant":
            parts = _policy(one, answer)
        else:
            asked = note.asked if i == asking else None
            parts = _outside(one, images, album, note.marks if i == marked else (), asked)
        if parts:  # otherwise only the answer, which is shown above
            role = one.role if one.role in ("system", "user", "assistant", "tool") else "user"
            found.append({"role": role, "name": one.name, "parts": parts})
    return found


def _policy(message: Message, answer: str) -> list[Part]:
    """The text of the model, with its reasoning and tool calls apart."""
    rows: list[Part] = []
    for reasoning, part in parts_of(message.text):
        if reasoning:
            rows.append(("reasoning", part))
        elif not answer or part not in (answer, f"<answer>{answer}</answer>") or len(part) > LONGEST_REPEATED:
            rows += [("code" if code else "text", piece) for code, piece in code_of(part)]
    for call in message.tool_calls:
        given = json.dumps(thaw(call.arguments), ensure_ascii=False, default=value_text) if call.arguments else ""
        rows.append(("call", {"name": call.name, "given": given, "error": call.error}))
    return rows if rows or message.text.strip() else [("empty", "")]


def _outside(
    message: Message, images: Mapping[str, bytes], album: Album, marks: Sequence[Mark], asked: str | None
) -> list[Part]:
    """The text of a task, an environment or a tool, with its images in place. A short text folds the whole one."""
    short = asked.strip() if asked else ""
    folds = short != "" and short != message.text.strip()
    parts = (TextPart(text=message.content),) if isinstance(message.content, str) else message.content
    rows: list[Part] = []
    row, count, total = list[dict[str, Any]](), 0, len(message.images)
    for part in parts:
        if isinstance(part, ImagePart):
            count += 1
            if count <= MOST_IMAGES:
                row.append(album.figure(part.sha256, images, marks if count == min(total, MOST_IMAGES) else ()))
        elif part.text.strip():
            rows += [("figures", row), *([] if folds else [("text", part.text.strip("\n"))])]
            row = []
    rows.append(("figures", row))
    if count > MOST_IMAGES:
        rows.append(("more", count - MOST_IMAGES))
    if folds:
        rows += [("text", short), ("folded", message.text)]
    return [(kind, part) for kind, part in rows if part]


__all__ = ["NO_NOTE", "Part", "messages"]
