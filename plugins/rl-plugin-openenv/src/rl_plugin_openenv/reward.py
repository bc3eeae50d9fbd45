"""The return of an episode."""

from __future__ import annotations

from rlcore.types import RewardResult, Stop, Task, Trajectory


def episode_return(trajectory: Trajectory, task: Task) -> RewardResult:
    """The sum of the rewards of the server, without discount; not scored if it gave none.

    An episode whose first answer was cut off did not reach the server, and scores 0.
    """
    value = trajectory.metrics.get("step_reward")
    if value is None and trajectory.stop is Stop.LENGTH:
        value = 0.0
    return RewardResult(value=value, error="the server gave no reward" if value is None else None)


__all__ = ["episode_return"]
