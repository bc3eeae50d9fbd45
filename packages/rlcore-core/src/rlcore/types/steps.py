"""Results of environments, and the reasons why an episode ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rlcore.types.frozen import FrozenDict, freeze
from rlcore.types.messages import Message, ToolSchema


class Stop(StrEnum):
    """Why an episode stopped."""

    DONE = "done"
    """The environment terminated."""
    MAX_TURNS = "max_turns"
    """The environment truncated after the last allowed turn."""
    LENGTH = "length"
    """A generation, or the whole context, reached its token limit."""
    TOOL_ERRORS = "tool_errors"
    """Too many unusable tool calls in a row."""
    CANCELLED = "cancelled"
    """The episode was cut short by an interruption of the run, or by a failure."""


class Boundary(StrEnum):
    """The component in which a failure occurred."""

    ENVIRONMENT = "environment"
    TOOL = "tool"
    ENGINE = "engine"
    REWARD = "reward"
    SANDBOX = "sandbox"
    """The sandbox itself, not the code that ran in it."""
    TIMEOUT = "timeout"
    """A deadline of the environment or of the whole trajectory passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error in an episode, with its boundary. A trajectory with a failure is not scored."""

    boundary: Boundary
    message: str

    def __str__(self) -> str:
        return f"{self.boundary}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The new messages of the environment. The first observation also lists the tools."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    images: tuple[bytes, ...] = ()
    """Encoded images that the messages refer to by `ImagePart.of`. Contains only new images."""
    context: tuple[Message, ...] | None = None
    """Set if the environment rewrites the context. It is the context that the model sees before ``messages`` from now
    on, such as the conversation without an old screenshot, or a summary that replaces it. The trajectory continues in
    a new segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The environment's answer to an action."""

    observation: Observation = Observation(messages=())
    reward: float | None = None
    """The reward of this turn; None if the turn is not scored (most rewards score the whole trajectory)."""
    terminated: bool = False
    truncated: bool = False
    stop: Stop | None = None
    """Set if the episode ends for another reason than ``done`` (terminated) or ``max_turns`` (truncated)."""
    info: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Numeric entries become metrics of the trajectory."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "info", freeze(self.info))
