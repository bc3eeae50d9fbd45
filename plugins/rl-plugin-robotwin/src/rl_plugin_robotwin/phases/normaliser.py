"""The running scale of rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_trainer.distributed.strategy import Strategy
from torch import Tensor


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
