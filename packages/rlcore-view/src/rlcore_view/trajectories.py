"""A group as the page shows it: its task, and its trajectories with their messages, rewards and times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlcore.plugin_calls import value_text
from rlcore.plugins.registry import Registry
from rlcore.report import Cell, NotesOf, Picture, TurnNote, notes_of_plugins
from rlcore.rollouts.decoding import Decode
from rlcore.rollouts.index import Row
from rlcore.types import ImagePart, Message, Segment, ToolCall, Trajectory, Turn, thaw

from rlcore_view.errors import NotFoundError
from rlcore_view.media import has_film, made_image, series_of
from rlcore_view.stored import Stored, StoredGroup
from rlcore_view.tokens import text_of

LONGEST_FIELD = 4_000
"""Characters of a field of a task."""
LONGEST_MESSAGE = 200_000
"""Characters of a text of a message."""
CODE_NAMES = ("code", "source", "script")
"""Names of an argument that is shown as code."""
PLACE = ("offset", "length")
"""Columns of a row that the page does not need."""


def group_data(stored: Stored, found: StoredGroup) -> dict[str, Any]:
    """A group with all its trajectories."""
    task, file = found.group.task, found.file
    times: dict[int, list[Row]] = {}
    for row in stored.times(file, "group", found.number):
        times.setdefault(row.get("sibling", -1), []).append(row)
    before = [number for number in found.others if number < found.number]
    after = [number for number in found.others if number > found.number]
    decode = partial(text_of, stored)
    return {
        "task": task.id,
        "environment": task.environment,
        "fields": {name: _field(thaw(value)) for name, value in task.fields.items()},
        "prompt": [_message(message) for message in task.messages],
        "tools": _tools(found.group.trajectories),
        "trajectories": [
            _trajectory(stored.run, found, one, times.get(one.sibling, []), decode)
            for one in found.group.trajectories
            if one.sibling in found.rows
        ],
        "previous": before[-1] if before else None,
        "previous_sibling": found.others[before[-1]] if before else None,
        "next": after[0] if after else None,
    }


def row_data(row: Row) -> Row:
    """A row without what the page does not need. Its seed is a text: a browser does not keep the digits of a number."""
    found = {name: value for name, value in row.items() if name not in PLACE}
    if "seed" in row.get("sampling", {}):
        found["sampling"] = {**row["sampling"], "seed": str(row["sampling"]["seed"])}
    return found


def note_picture(found: StoredGroup, sibling: int, turn: int, number: int) -> tuple[bytes, str]:
    """An image that a plugin made for its note on a turn, with its content type.

    Raises:
        NotFoundError: there is none.
        DataError: it is damaged, too large, or of a format that browsers do not show.
    """
    one = next((each for each in found.group.trajectories if each.sibling == sibling), None)
    turns = _notes()(found.group.task, one, found.file.step).turns if one is not None else ()
    note = turns[turn] if turn < len(turns) else None
    if note is None or number >= len(note.made):
        raise NotFoundError("there is no such picture", fix="open the trajectory again")
    return made_image(note.made[number])


def _trajectory(run: Path, found: StoredGroup, one: Trajectory, times: Sequence[Row], decode: Decode) -> dict[str, Any]:
    file = found.file
    place = f"{file.purpose}/{file.step}/{found.number}/{one.sibling}"
    turns, problem = _notes()(found.group.task, one, file.step)
    notes = (None if note is None else _note(note, run, f"note/{place}/{number}") for number, note in enumerate(turns))
    return {
        "row": row_data(found.rows[one.sibling]),
        "segments": [
            _segment(segment, notes, f"frame/{place}/{number}", decode) for number, segment in enumerate(one.segments)
        ],
        "notes_problem": problem,
        "rewards": [
            {
                "id": id,
                "value": result.value,
                "components": dict(result.components),
                "error": result.error,
                "text": result.text,
            }
            for id, result in one.rewards.items()
        ],
        "failure": str(one.failure) if one.failure is not None else None,
        "times": list(_times(times)),
    }


@cache
def _notes() -> NotesOf:
    return notes_of_plugins(Registry())


def _segment(segment: Segment, notes: Iterator[dict[str, Any] | None], address: str, decode: Decode) -> dict[str, Any]:
    turns = [_turn(turn, next(notes, None) if turn.kind == "policy" else None) for turn in segment.turns]
    for turn, shown in zip(segment.turns, turns, strict=True):
        _add_unreadable(turn, shown["messages"], segment, decode)
    return {
        "context": [_message(message) for message in segment.context],
        "turns": turns,
        "tokens": len(segment),
        "series": [series_of(name, array, address) for name, array in segment.arrays.items()],
    }


def _turn(turn: Turn, note: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "kind": turn.kind,
        "start": turn.start,
        "end": turn.end,
        "messages": [_message(message) for message in turn.messages],
        "reward": turn.reward,
        "finish_reason": turn.finish_reason or "",
        "versions": sorted({turn.spans[0].version, turn.spans[-1].version}),
        "note": note,
    }


def _add_unreadable(turn: Turn, messages: list[dict[str, Any]], segment: Segment, decode: Decode) -> None:
    """Give the first call of a turn that could not be read what the policy wrote after the text of its message."""
    for message, shown in zip(turn.messages, messages, strict=True):
        for call, shown_call in zip(message.tool_calls, shown["calls"], strict=True):
            if call.error and call.arguments is None:
                written = decode(segment.token_ids[turn.start : turn.end].tolist())
                said = message.content if isinstance(message.content, str) else ""
                shown_call["arguments"] = cut(written.strip().removeprefix(said.strip()).strip())
                return


def _note(note: TurnNote, run: Path, address: str) -> dict[str, Any]:
    """A note. ``address`` begins those of the images that a plugin made."""
    made = count()
    cells = [_cell(cell, address, made) for cell in note.cells]
    return {
        **{name: getattr(note, name) for name in ("lines", "right", "asked", "said")},
        "marks": [asdict(mark) for mark in note.marks],
        "tables": [asdict(table) for table in note.tables],
        "cells": cells,
        "pictures": [_picture(picture, address, made) for picture in note.pictures],
        "films": [
            {"title": film.title, "name": f"film/{quote(film.file)}"} for film in note.films if has_film(run, film.file)
        ],
    }


def _cell(cell: Cell, address: str, made: Iterator[int]) -> dict[str, Any]:
    return {
        "code": cut(cell.code),
        "output": cut(cell.output),
        "error": cut(cell.error),
        "pictures": [_picture(picture, address, made) for picture in cell.pictures],
    }


def _picture(picture: Picture, address: str, made: Iterator[int]) -> dict[str, Any]:
    name = picture.image if isinstance(picture.image, str) else f"{address}/{next(made)}"
    return {"name": name, "title": picture.title, "marks": [asdict(mark) for mark in picture.marks]}


def _message(message: Message) -> dict[str, Any]:
    content = message.content
    parts = ([{"text": cut(content)}] if content else []) if isinstance(content, str) else [*map(_part, content)]
    calls = [_call(call) for call in message.tool_calls]
    return {"role": message.role, "parts": parts, "calls": calls, "name": message.name or ""}


def _part(part: Any) -> dict[str, str]:
    return {"image": part.sha256} if isinstance(part, ImagePart) else {"text": cut(part.text)}


def cut(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """A text, with a last line that says how much is left out if it is long."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest:,} further characters are not shown"


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = thaw(call.arguments) or {}
    name, value = next(iter(arguments.items()), ("", None))
    code = value if len(arguments) == 1 and isinstance(value, str) else ""
    code = code if name in CODE_NAMES or "\n" in code else ""
    shown = json.dumps(arguments, ensure_ascii=False, indent=2, default=value_text) if call.arguments else ""
    return {
        "name": call.name,
        "arguments": "" if code else cut(shown),
        "code": cut(code),
        "error": call.error,
    }


def _field(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=value_text)
    return cut(text, LONGEST_FIELD)


def _tools(trajectories: Iterable[Trajectory]) -> list[dict[str, str]]:
    """The tools that the first trajectory with tools has."""
    tools = next((one.tools for one in trajectories if one.tools), ())
    return [
        {
            "name": tool.name,
            "description": cut(tool.description),
            "parameters": json.dumps(thaw(tool.parameters), ensure_ascii=False, indent=2, default=value_text),
        }
        for tool in tools
    ]


def _times(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The times by their start, relative to the first one."""
    numbers = (int, float)
    valid = [row for row in rows if isinstance(row.get("start"), numbers) and isinstance(row.get("seconds"), numbers)]
    first = min((row["start"] for row in valid), default=0)
    for row in sorted(valid, key=lambda one: one["start"]):
        name, kind = str(row.get("name", "")), str(row.get("kind", ""))
        yield {"kind": kind, "name": name, "start": round(row["start"] - first, 6), "seconds": row["seconds"]}


__all__ = ["cut", "group_data", "note_picture", "row_data"]
