"""Rollout requests from a trainer or an evaluation to a sampler."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rlcore.types.frozen import FrozenDict, freeze
from rlcore.types.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutKey:
    """How often and for what purpose a task is run. Randomness is keyed by (seed, step, task id, sibling, position)."""

    group_size: int
    seed: int
    step: int
    purpose: Literal["train", "evaluation", "baseline"] = "train"
    sampling: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Fields of `Sampling` that override those of the run, such as ``{"temperature": 0.0}``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling", freeze(self.sampling))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest(RolloutKey):
    """A request to run every task ``group_size`` times."""

    tasks: Sequence[Task]

    def __post_init__(self) -> None:
        RolloutKey.__post_init__(self)
        object.__setattr__(self, "tasks", tuple(self.tasks))

    @property
    def key(self) -> RolloutKey:
        """The request without its tasks."""
        return RolloutKey(**{one.name: getattr(self, one.name) for one in fields(RolloutKey)})


def derive_seed(*key: object) -> int:
    """Return a 63-bit seed derived from a key. It is the same on every machine and in every process."""
    text = "\x1f".join(str(part) for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
