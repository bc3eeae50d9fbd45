"""A trajectory as one flat row, and its messages in the form of the chat completions API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rlcore.export.selection import Selected
from rlcore.plain_json import plain
from rlcore.plugin_calls import value_text
from rlcore.report.answers import expected_answer
from rlcore.types import Message, TextPart, thaw

INDEX: Mapping[str, type] = {
    **dict.fromkeys(("purpose",), str),
    **dict.fromkeys(("step", "group", "sibling"), int),
    **dict.fromkeys(("task", "environment", "role"), str),
    "reward": float,
    **dict.fromkeys(("stop", "failure"), str),
    **dict.fromkeys(("tokens", "turns"), int),
    **dict.fromkeys(("mean", "spread"), float),
    **dict.fromkeys(("fate", "why"), str),
    "excluded": bool,
    **dict.fromkeys(("trained_step", "trained_version", "staleness"), int),
    "versions": list,
    **dict.fromkeys(("temperature", "top_p"), float),
    **dict.fromkeys(("top_k", "max_new_tokens", "seed"), int),
}
"""The columns of the index, with their types."""
OF_REWARD: Mapping[str, type] = {"reward": float, "judge": str, "error": str}
"""The columns ``NAME/ID`` of each reward."""
TEXTS = ("expected", "prompt", "response")
NESTED = ("fields", "tools", "messages")


def columns(one: Selected) -> dict[str, Any]:
    """The row of a trajectory, as plain data."""
    trajectory = one.trajectory
    known = {**one.row.get("sampling", {}), **one.row}
    found: dict[str, Any] = {name: known.get(name) for name in INDEX}
    for id, result in trajectory.rewards.items():
        found |= {f"reward/{id}": result.value, f"judge/{id}": result.text or None, f"error/{id}": result.error}
    found |= {f"metrics/{name}": value for name, value in trajectory.metrics.items()}
    first = trajectory.turns[:1]
    prompt = first[0].messages if first and first[0].kind == "observation" else one.task.messages
    found |= {
        "expected": expected_answer(one.task.fields),
        "prompt": "\n".join(message.text for message in prompt),
        "response": trajectory.final_response,
        "fields": thaw(one.task.fields),
        "tools": [tool.as_json() for tool in trajectory.tools],
    }
    return dict(plain(found))


def chat(messages: Iterable[Message], url: Callable[[str], str]) -> list[dict[str, Any]]:
    """Messages in the form of the chat completions API, as plain data.

    Args:
        messages: the conversation
        url: the address of an image by its hash
    """
    found = []
    for message, ids, answered in numbered(messages):
        one: dict[str, Any] = {"role": message.role, "content": message.content}
        if not isinstance(message.content, str):
            one["content"] = [
                {"type": "text", "text": part.text}
                if isinstance(part, TextPart)
                else {"type": "image_url", "image_url": {"url": url(part.sha256)}}
                for part in message.content
            ]
        if ids:
            one["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": call.name, "arguments": text(call.arguments or {})}}
                for id, call in zip(ids, message.tool_calls, strict=True)
            ]
        if answered:
            one["tool_call_id"] = answered
        found.append(one)
    return list(plain(found))


def numbered(messages: Iterable[Message]) -> Iterator[tuple[Message, list[str], str]]:
    """Each message with the ids of its tool calls, and the id of the call that it answers.

    The ids are new, because a parser may number the calls of each message from 0.
    """
    count, waiting = 0, list[tuple[str, str]]()
    for message in messages:
        ids = [f"call_{count + place}" for place in range(len(message.tool_calls))]
        count += len(ids)
        if ids:
            waiting = [(call.id, id) for call, id in zip(message.tool_calls, ids, strict=True)]
        answered = ""
        if message.role == "tool" and waiting:
            place = next((i for i, (id, _) in enumerate(waiting) if id == message.tool_call_id), 0)
            answered = waiting.pop(place)[1]
        yield message, ids, answered


def text(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(plain(thaw(value)), ensure_ascii=False, default=value_text)


__all__ = ["INDEX", "NESTED", "OF_REWARD", "TEXTS", "chat", "columns", "numbered", "text"]
