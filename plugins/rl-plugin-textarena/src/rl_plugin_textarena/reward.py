"""The result of a game."""

from __future__ import annotations

from rlcore.types import Task, Trajectory


def game_result(trajectory: Trajectory, task: Task) -> float:
    """The game's reward for the player: 1 for a victory, 0 for a draw, -1 for a defeat in games for two."""
    return trajectory.metrics.get("step_reward", 0.0)
