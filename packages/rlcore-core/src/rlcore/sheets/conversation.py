"""Messages of a trajectory as HTML. Their text is shown, never interpreted."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence

from rlcore.console.escaping import printable
from rlcore.console.wording import counted
from rlcore.plugin_calls import value_text
from rlcore.sheets.answers import code_of, parts_of
from rlcore.sheets.notes import Mark, TurnNote
from rlcore.sheets.pictures import Album
from rlcore.types import ImagePart, Message, TextPart, ToolCall, thaw

LONGEST = 8_000
"""Limit of a shown text in characters."""
LONG_REASONING = 900
"""Longer reasoning is folded."""
LONGEST_REPEATED = 160
"""An answer of at most this length is not repeated below the first line of a trajectory."""
MOST_IMAGES = 16
"""Number of images that are shown of a message."""
NO_NOTE = TurnNote()


def text(value: str, limit: int = LONGEST) -> str:
    """A text as HTML: markup and control characters are visible, line breaks are kept, and long texts are cut."""
    kept = value[:limit]
    shown = "\n".join(html.escape(printable(line)) for line in kept.split("\n"))
    left = len(value) - len(kept)
    return shown + (f'<span class="cut"> … {left:,} more characters</span>' if left else "")


def messages(
    spoken: Iterable[Message],
    images: Mapping[str, bytes],
    album: Album,
    *,
    answer: str = "",
    note: TurnNote = NO_NOTE,
) -> str:
    """Messages in order. The marks of the note are on their last image, and its short text replaces their last text.

    A text that only repeats the answer, which is shown above them, is left out.
    """
    spoken = list(spoken)
    marked = max((index for index, message in enumerate(spoken) if message.images), default=None)
    asking = max((index for index, message in enumerate(spoken) if message.role == "user"), default=None)
    return "".join(
        _message(one, images, album, answer, note.marks if i == marked else (), note.asked if i == asking else None)
        for i, one in enumerate(spoken)
    )


def _message(
    message: Message,
    images: Mapping[str, bytes],
    album: Album,
    answer: str,
    marks: Sequence[Mark],
    asked: str | None,
) -> str:
    role = message.role if message.role in ("system", "user", "assistant", "tool") else "user"
    name = f"{role} · {text(message.name, 80)}" if message.name else role
    body = _policy(message, answer) if role == "assistant" else _outside(message, images, album, marks, asked)
    if not body:  # only the answer, which is shown above
        return ""
    if role == "system":
        return f'<details class="message system"><summary>system</summary>{body}</details>'
    return f'<div class="message {role}"><h4>{name}</h4>{body}</div>'


def _policy(message: Message, answer: str) -> str:
    """The text of the model, with its reasoning and tool calls apart."""
    rows = []
    for reasoning, part in parts_of(message.text):
        if reasoning:
            opened = " open" if len(part) <= LONG_REASONING else ""
            size = counted(len(part), "character")
            rows.append(f'<details class="think"{opened}><summary>Reasoning, {size}</summary>{_block(part)}</details>')
        elif not answer or part not in (answer, f"<answer>{answer}</answer>") or len(part) > LONGEST_REPEATED:
            rows += [_code(piece) if code else _block(piece) for code, piece in code_of(part)]
    empty = "" if message.text.strip() else '<p class="text empty">(empty)</p>'
    return "".join([*rows, *map(_call, message.tool_calls)]) or empty


def _outside(
    message: Message, images: Mapping[str, bytes], album: Album, marks: Sequence[Mark], asked: str | None
) -> str:
    """The text of a task, an environment or a tool, with its images in place. A short text folds the whole one."""
    short = asked.strip() if asked else ""
    folds = short != "" and short != message.text.strip()
    parts = (TextPart(text=message.content),) if isinstance(message.content, str) else message.content
    rows, row, count, total = [], list[str](), 0, len(message.images)
    for part in parts:
        if isinstance(part, ImagePart):
            count += 1
            if count <= MOST_IMAGES:
                row.append(album.figure(part.sha256, images, marks if count == min(total, MOST_IMAGES) else ()))
        elif part.text.strip():
            rows += [_figures(row), *([] if folds else [_block(part.text.strip("\n"))])]
            row = []
    more = f'<p class="cut">{counted(count - MOST_IMAGES, "more image")}</p>' if count > MOST_IMAGES else ""
    return "".join([*rows, _figures(row), more, *([_folded(short, message.text)] if folds else [])])


def _folded(short: str, whole: str) -> str:
    size = counted(len(whole), "character")
    return f"{_block(short)}<details><summary>Prompt, {size}</summary>{_block(whole)}</details>"


def _figures(row: list[str]) -> str:
    return f'<div class="figures">{"".join(row)}</div>' if row else ""


def _block(value: str) -> str:
    return f'<p class="text">{text(value)}</p>'


def _code(value: str) -> str:
    return f'<pre class="code">{text(value)}</pre>'


def note_lines(note: TurnNote) -> str:
    """The lines of a note about a turn, and whether the turn is right."""
    rows = [f"<span>{text(name, 80)} <b>{text(value, 400)}</b></span>" for name, value in note.lines]
    kind = "" if note.right is None else " right" if note.right else " wrong"
    return f'<p class="turn{kind}">{"".join(rows)}</p>' if rows else ""


def _call(call: ToolCall) -> str:
    given = json.dumps(thaw(call.arguments), ensure_ascii=False, default=value_text) if call.arguments else ""
    wrong = f'<p class="text error">{text(call.error, 400)}</p>' if call.error else ""
    return f'<p class="text call"><b>{text(call.name, 80)}</b>({text(given, 2000)})</p>{wrong}'


__all__ = ["NO_NOTE", "messages", "note_lines", "text"]
