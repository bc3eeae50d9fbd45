"""Stored rollouts: trajectories as JSON lines, from which they come back equal."""

from __future__ import annotations

import base64
import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from rlcore.errors import DataError
from rlcore.types import (
    EndReason,
    Group,
    ImagePart,
    Message,
    Part,
    RewardResult,
    Task,
    TextPart,
    ToolCall,
    ToolSchema,
    Trajectory,
    Turn,
    freeze,
    thaw,
)
from rlcore.whole_files import whole


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """Plain data; pictures in base64."""
    return {
        "task_id": trajectory.task_id,
        "sibling": trajectory.sibling,
        "end_reason": str(trajectory.end_reason),
        "error": trajectory.error,
        "reward": trajectory.reward,
        "rewards": {
            id: {"value": result.value, "components": thaw(result.components), "error": result.error}
            for id, result in trajectory.rewards.items()
        },
        "metrics": dict(trajectory.metrics),
        "turns": [_turn_to_json(turn) for turn in trajectory.turns],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": thaw(tool.parameters)}
            for tool in trajectory.tools
        ],
        "images": {name: base64.b64encode(data).decode("ascii") for name, data in trajectory.images.items()},
        "token_ids": list(trajectory.token_ids),
        "loss_mask": [int(sampled) for sampled in trajectory.loss_mask],
        "logprobs": list(trajectory.logprobs),
    }


def trajectory_from_json(data: Mapping[str, Any]) -> Trajectory:
    """The inverse of `trajectory_to_json`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is not what `trajectory_to_json` gives.
    """
    reward = data["reward"]
    if reward is not None and (not isinstance(reward, int | float) or math.isnan(reward)):
        raise ValueError(f"a reward is a number or null, not {reward!r}")
    return Trajectory(
        task_id=data["task_id"],
        sibling=data["sibling"],
        end_reason=EndReason(data["end_reason"]),
        error=data["error"],
        reward=data["reward"],
        rewards={
            id: RewardResult(value=item["value"], components=freeze(item["components"]), error=item["error"])
            for id, item in data["rewards"].items()
        },
        metrics=dict(data["metrics"]),
        turns=tuple(_turn_from_json(turn) for turn in data["turns"]),
        tools=tuple(
            ToolSchema(name=tool["name"], description=tool["description"], parameters=freeze(tool["parameters"]))
            for tool in data["tools"]
        ),
        images={name: base64.b64decode(text) for name, text in data["images"].items()},
        token_ids=tuple(data["token_ids"]),
        loss_mask=tuple(bool(sampled) for sampled in data["loss_mask"]),
        logprobs=tuple(data["logprobs"]),
    )


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    return {
        "kind": turn.kind,
        "start": turn.start,
        "end": turn.end,
        "reward": turn.reward,
        "finish_reason": turn.finish_reason,
        "policy_version": turn.policy_version,
        "messages": [message_to_json(message) for message in turn.messages],
    }


def _turn_from_json(data: Mapping[str, Any]) -> Turn:
    return Turn(**{**data, "messages": tuple(message_from_json(message) for message in data["messages"])})


def message_to_json(message: Message) -> dict[str, Any]:
    """One message, keys without a value left out."""
    content: Any = message.content
    if not isinstance(content, str):
        content = [_part_to_json(part) for part in content]
    data: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        data["tool_calls"] = [
            {"name": call.name, "arguments": thaw(call.arguments), "error": call.error, "id": call.id}
            for call in message.tool_calls
        ]
    if message.name is not None:
        data["name"] = message.name
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def message_from_json(data: Mapping[str, Any]) -> Message:
    """The inverse of `message_to_json`."""
    content = data["content"]
    if not isinstance(content, str):
        content = tuple(_part_from_json(part) for part in content)
    calls = tuple(ToolCall(**{**call, "arguments": freeze(call["arguments"])}) for call in data.get("tool_calls", ()))
    return Message(
        role=data["role"],
        content=content,
        tool_calls=calls,
        name=data.get("name"),
        tool_call_id=data.get("tool_call_id"),
    )


def _part_to_json(part: Part) -> dict[str, str]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image", "sha256": part.sha256}


def _part_from_json(data: Mapping[str, str]) -> Part:
    return TextPart(text=data["text"]) if data["type"] == "text" else ImagePart(sha256=data["sha256"])


def task_to_json(task: Task) -> dict[str, Any]:
    """Plain data; pictures in base64."""
    return {
        "id": task.id,
        "messages": [message_to_json(message) for message in task.messages],
        "fields": thaw(task.fields),
        "images": [base64.b64encode(data).decode("ascii") for data in task.images],
    }


def task_from_json(data: Mapping[str, Any]) -> Task:
    """The inverse of `task_to_json`."""
    return Task(
        id=data["id"],
        messages=tuple(message_from_json(message) for message in data["messages"]),
        fields=data["fields"],
        images=tuple(base64.b64decode(text) for text in data["images"]),
    )


def write_groups(path: Path, groups: Iterable[Group]) -> None:
    """One JSON line per group, the file whole or not there. Equal groups give equal bytes; ``.gz`` is compressed.

    Raises:
        UserError: it cannot be written.
    """
    with whole(path) as raw, _compressed(raw) if path.suffix == ".gz" else nullcontext(raw) as file:
        for group in groups:
            trajectories = [trajectory_to_json(trajectory) for trajectory in group.trajectories]
            line = {"task": task_to_json(group.task), "trajectories": trajectories}
            file.write(json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass") + b"\n")


def _compressed(raw: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=1, mtime=0)


def read_groups(path: Path) -> Iterator[Group]:
    """The groups of a file that `write_groups` wrote.

    Raises:
        DataError: naming the file and the line that is not a stored group.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    data = json.loads(line.decode("utf-8", "surrogatepass"))
                    trajectories = tuple(trajectory_from_json(item) for item in data["trajectories"])
                    yield Group(task=task_from_json(data["task"]), trajectories=trajectories)
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    found = f"{type(error).__name__}: {error}"
                    raise DataError("this is not a stored group", found=found, where=f"{path}:{number}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read the rollouts in {path}", found=str(error)) from None
