"""Tasks and demonstrations: the rows of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.types.arrays import NumberArray
from rlcore.types.frozen import FrozenDict, freeze
from rlcore.types.messages import Message, ToolSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of a dataset. The environment, the tools and the reward receive all of its fields."""

    id: str
    messages: tuple[Message, ...]
    fields: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Every other field of the row, such as the expected ``answer``."""
    images: tuple[bytes, ...] = ()
    """Encoded images that the messages refer to."""
    environment: str = ""
    """Name of its environment in a run with several; set by rlcore, and empty in other runs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", freeze(self.fields))

    @property
    def key(self) -> str:
        """The id, which is unique only within an environment, with the name of the environment."""
        return f"{self.environment}/{self.id}" if self.environment else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A conversation for imitation. Only its assistant messages are used for training."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    images: tuple[bytes, ...] = ()
    """Encoded images that the messages refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A prompt with two answers, one of which is preferred. Each answer begins with an assistant message."""

    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    """The messages of the preferred answer, after the prompt."""
    rejected: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    images: tuple[bytes, ...] = ()
    """Encoded images that the messages refer to."""
    margin: float = 0.0
    """How much better the chosen answer is, in units of a reward model's score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """An episode of control for imitation, of T steps."""

    observations: Mapping[str, NumberArray]
    """What the environment returned before each action, by the keys of its observation: T rows each. An environment
    whose observation is one array has the key ``state``."""
    actions: NumberArray
    """The actions in the environment's units, [T, A]."""
    instruction: str = ""
    """What the episode shows, if the policy reads instructions."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "observations", freeze(self.observations))
        for name, rows in self.observations.items():
            if not rows.shape or len(rows) != len(self.actions):
                raise ValueError(f"{name!r} must have {len(self.actions)} rows, one for each action, not {rows.shape}")
