"""The return of an episode."""

from __future__ import annotations

from rlcore.types import Task, Trajectory


def episode_return(trajectory: Trajectory, task: Task) -> float:
    """The sum of the rewards of the environment, without discount; 0 if the first answer was cut off."""
    return trajectory.metrics.get("step_reward", 0.0)
