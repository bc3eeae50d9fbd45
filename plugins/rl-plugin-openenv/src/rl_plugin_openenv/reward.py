"""The return of an episode."""

from __future__ import annotations

from rlcore.types import RewardResult, Task, Trajectory


def episode_return(trajectory: Trajectory, task: Task) -> RewardResult:
    """The sum of the rewards of the server, without discount; not scored if it gave none."""
    value = trajectory.metrics.get("step_reward")
    return RewardResult(value=value, error="the server gave no reward" if value is None else None)


__all__ = ["episode_return"]
