"""A segment in progress of an agent with its own loop, and the messages with which a request continues it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rlcore.types import ImagePart, Message, thaw

from rlcore_rollout.trajectory_builder import Record

Key = tuple[Any, ...]
"""A message without what SDKs change when they send it again."""


@dataclass(slots=True, kw_only=True)
class State:
    """The lengths of a conversation before a turn, to which it returns if the turn does not count."""

    keys: int
    turn: int | None
    tokens: int
    turns: int
    media: int
    counted_tokens: int
    metrics: dict[str, float]


@dataclass(slots=True, kw_only=True)
class Conversation:
    """A segment in progress, and the messages with which a request that continues it begins."""

    record: Record
    seed: int
    keys: list[Key] = field(default_factory=list)
    busy: bool = False
    """Whether a turn is being sampled."""
    asked: bool = False
    """Whether the engine has seen the prompt of the last turn."""
    turn: int | None = None
    """Number of its last turn."""
    before: State | None = None
    """Its state before the last turn, until that is withdrawn."""

    def state(self) -> State:
        """Return its state before a turn."""
        grown = self.record.segments[0] if self.record.segments else None
        return State(
            keys=len(self.keys),
            turn=self.turn,
            tokens=len(grown.token_ids) if grown is not None else 0,
            turns=len(grown.turns) if grown is not None else 0,
            media=len(grown.media) if grown is not None else 0,
            counted_tokens=grown.counted_tokens if grown is not None else 0,
            metrics=dict(self.record.metrics),
        )

    def restore(self, state: State) -> None:
        """Return to a state."""
        del self.keys[state.keys :]
        self.turn, self.record.metrics = state.turn, state.metrics
        if self.record.segments:
            grown = self.record.segment
            for values in (grown.token_ids, grown.loss_mask, grown.logprobs):
                del values[state.tokens :]
            del grown.turns[state.turns :], grown.media[state.media :]
            grown.counted_tokens = state.counted_tokens


def key_of(message: Message) -> Key:
    """What makes two messages equal: parts of text are joined, arguments are compared as values, ids do not count."""
    parts = (message.content,) if isinstance(message.content, str) else message.content
    content: list[str] = [""]
    for part in parts:
        if isinstance(part, ImagePart):
            content += [part.sha256, ""]
        else:
            content[-1] += part if isinstance(part, str) else part.text
    if message.role == "assistant":  # SDKs remove the white space around answers
        content = [text.strip() for text in content]
    calls = tuple((call.name, json.dumps(thaw(call.arguments), sort_keys=True)) for call in message.tool_calls)
    return message.role, tuple(content), calls


__all__ = ["Conversation", "Key", "State", "key_of"]
