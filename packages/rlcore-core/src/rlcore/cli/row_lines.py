"""Rows of data files, datasets and stored rollouts as lines of text, with their images between them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rlcore.cli.text import excerpt, printable
from rlcore.errors import DataError
from rlcore.plugin_calls import value_text
from rlcore.runs.records import group_from_json
from rlcore.types import to_json
from rlcore.wording import counted


class Shown(NamedTuple):
    """The place of an image."""

    sha256: str


def row_lines(row: Mapping[str, Any]) -> Iterator[str | Shown]:
    """The fields of a row, with conversations as messages; for a stored group, its first trajectory."""
    if set(row) == {"task", "trajectories"}:
        yield from _group_lines(row)
        return
    for key, value in row.items():
        if key == "messages" and isinstance(value, list):
            yield "  messages"
            yield from (line for message in value for line in _message_lines(message))
        elif images := _images_in(value):
            yield f"  {key}"
            yield from images
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=value_text)
            first, *others = excerpt(text)
            yield f"  {key}: {first}"
            yield from (f"    {line}" for line in others)


def _images_in(value: Any) -> list[str | Shown]:
    """The images of a column of `FileImages`; empty for any other value."""
    parts = value if isinstance(value, list) else [value]
    shown = [_part(part) for part in parts if isinstance(part, Mapping) and set(part) == {"sha256"}]
    return shown if len(shown) == len(parts) else []


def _group_lines(row: Mapping[str, Any]) -> Iterator[str | Shown]:
    try:
        group = group_from_json(row, decode_bytes=str.encode)  # images are read where they are shown
    except ValueError as error:
        fix = "give a file of rollouts/ of a run, or restore it"
        raise DataError("this is not a stored group", found=printable(str(error)), fix=fix) from None
    yield f"  task {group.task.id}"
    for trajectory in group.trajectories[:1]:
        metrics = trajectory.metrics
        reported = metrics.get("prompt_tokens", 0) + metrics.get("completion_tokens", 0)  # by an endpoint
        reported = int(reported) if math.isfinite(reported) else 0
        tokens = counted(sum(map(len, trajectory.segments)) or reported, "token")
        place = f"trajectory 1 of {len(group.trajectories)}"
        yield f"  {place}: {trajectory.stop}, {tokens}, reward {_reward(trajectory.reward)}"
        if group.rewards_G[1:]:
            yield f"  rewards of the other trajectories: {', '.join(map(_reward, group.rewards_G[1:]))}"
        for number, segment in enumerate(trajectory.segments):
            if number:
                yield f"    (context rewritten to {counted(len(segment.context), 'message')})"
            for turn in segment.turns:
                yield from (line for message in turn.messages for line in _message_lines(to_json(message)))
        if trajectory.failure is not None:
            yield f"  failure: {printable(str(trajectory.failure))}"


def _reward(value: float | None) -> str:
    return "not scored" if value is None else f"{value:g}"


def _message_lines(message: Any) -> Iterator[str | Shown]:
    if not isinstance(message, Mapping):
        yield f"    {printable(str(message))}"
        return
    content, calls = message.get("content", ""), message.get("tool_calls") or ()
    parts: list[str | Shown] = []
    for part in content if isinstance(content, (list, tuple)) else [content or ""]:
        shown = _part(part)
        parts += [shown] if isinstance(shown, Shown) else [printable(line) for line in shown.splitlines()]
    parts += [_call_line(call) for call in (calls if isinstance(calls, (list, tuple)) else (calls,))]
    if parts:
        begin = f"    {printable(str(message.get('role', '?')))}:"
        yield begin if isinstance(parts[0], Shown) else f"{begin} {parts.pop(0)}"
        yield from (part if isinstance(part, Shown) else f"      {part}" for part in parts)


def _part(part: Any) -> str | Shown:
    """A text, or an image in rlcore's form. Anything else, such as an image in a data file, is shown as JSON."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        if isinstance(part.get("sha256"), str):
            return Shown(part["sha256"])
        if isinstance(part.get("text"), str):
            return str(part["text"])
    return json.dumps(part, ensure_ascii=False, default=value_text)


def _call_line(call: Any) -> str:
    """A tool call, in rlcore's form or in that of the chat completions API."""
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping):
        return f"→ {printable(str(call))}"
    arguments = inner.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=value_text)
    return f"→ {printable(str(inner.get('name', '?')))}({printable(str(inner.get('error') or text))})"


__all__ = ["Shown", "row_lines"]
