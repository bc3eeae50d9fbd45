"""Rewards of control environments."""

from __future__ import annotations

from rlcore.types import Task, Trajectory


def episode_return(trajectory: Trajectory, task: Task) -> float:
    """The sum of the environment's rewards, without discount."""
    return trajectory.metrics["step_reward"]


def success(trajectory: Trajectory, task: Task) -> float:
    """1 if the environment reports ``is_success`` or ``success`` in the last step of the episode, else 0.

    Raises:
        ValueError: the environment reports neither, so the trajectory is not scored.
    """
    found = trajectory.metrics.get("success")
    if found is None:
        raise ValueError("the environment does not report info['is_success'] at the end of an episode")
    return found
