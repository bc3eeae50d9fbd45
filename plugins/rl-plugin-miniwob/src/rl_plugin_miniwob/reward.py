"""The reward of an episode."""

from __future__ import annotations

from rlcore.types import RewardResult, Task, Trajectory


def page_reward(trajectory: Trajectory, task: Task) -> RewardResult:
    """The reward of the page, with 0 in place of negative rewards. The component ``raw`` has them."""
    raw = trajectory.metrics.get("step_reward", 0.0)
    return RewardResult(value=min(1.0, max(0.0, raw)), components={"raw": raw})
