"""The explorer's reward: its terms, which a plugin registers, and their running scale.

Axes: B episodes, T steps, A values of an action, M the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore_trainer.distributed.strategy import Strategy
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the terms read. The reward of step t belongs to action t."""

    error_BT: Tensor
    """Error of the world model's prediction of the frame after the action, before it was trained on the episodes."""
    later_error_BT: Tensor
    """The same after the world model was trained in this round; equal if it is frozen."""
    uncertainty_BT: Tensor
    """Entropy of that prediction, in nats per patch."""
    memory: Tensor
    """The explorer's memory after each observation, ``[B, T + 1, M]``."""
    teacher_memory: Tensor
    """The world model's memory after each observation, ``[B, T + 1, M]``."""
    action_BTA: Tensor
    """Actions between -1 and 1."""
    success_BT: Tensor
    """1 at the last step of a successful episode, else 0."""


def wm_error(round: Round) -> Tensor:
    """Return the error of the world model on the transition that was really made."""
    return round.error_BT


def wm_uncertainty(round: Round) -> Tensor:
    """Return the entropy of the prediction."""
    return round.uncertainty_BT


def learning_progress(round: Round) -> Tensor:
    """Return by how much training reduced the error: it pays for what can be learnt, and not for noise.

    The published term is another one: the error of a step minus that of the next step, before training.
    """
    return round.error_BT - round.later_error_BT


def memory_divergence(round: Round) -> Tensor:
    """Return the decrease of the distance between the memories of explorer and world model."""
    distance = ((round.memory - round.teacher_memory) ** 2).mean(-1).sqrt()
    return distance[:, :-1] - distance[:, 1:]


def action_cost(round: Round) -> Tensor:
    """Return minus the mean absolute action."""
    return -round.action_BTA.abs().mean(-1)


def task_success(round: Round) -> Tensor:
    """Return 1 at the end of a successful episode."""
    return round.success_BT


class RewardNormaliser:
    """Divides rewards by their standard deviation over all rounds so far."""

    def __init__(self, limit: float) -> None:
        self._limit, self._count, self._mean, self._squares = limit, 0.0, 0.0, 0.0

    def __call__(self, rewards_BT: Tensor | None, valid_BT: Tensor | None, strategy: Strategy) -> Tensor | None:
        """Add the rewards of a round of all processes, and return this process's rewards, scaled and limited."""
        here = rewards_BT[valid_BT].double() if rewards_BT is not None else None
        sums = strategy.processes.sum(
            {
                "count": float(here.numel()) if here is not None else 0.0,
                "sum": float(here.sum()) if here is not None else 0.0,
            }
        )
        mean = sums["sum"] / sums["count"]
        spread = strategy.processes.sum({"squares": float(((here - mean) ** 2).sum()) if here is not None else 0.0})[
            "squares"
        ]
        both, delta = self._count + sums["count"], mean - self._mean
        self._squares += spread + delta**2 * self._count * sums["count"] / both
        self._mean += delta * sums["count"] / both
        self._count = both
        deviation = (self._squares / both) ** 0.5
        if rewards_BT is None:
            return None
        scaled: Tensor = rewards_BT / max(deviation, 1e-8)
        limited: Tensor = scaled.clamp(-self._limit, self._limit)
        return limited

    def state_dict(self) -> dict[str, float]:
        """Return count, mean and sum of squared deviations."""
        return {"count": self._count, "mean": self._mean, "squares": self._squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._count, self._mean, self._squares = (float(state[name]) for name in ("count", "mean", "squares"))
