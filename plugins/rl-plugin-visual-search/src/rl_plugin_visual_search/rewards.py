"""The rewards: accuracy, the tool bonus and the format."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import Group, RewardResult, Task, Trajectory

from rl_plugin_visual_search.config import AccuracyConfig, ToolBonusConfig


class Accuracy:
    """1 if the boxed answer is right, else 0."""

    def __init__(self, config: AccuracyConfig) -> None:
        self.config = config

    def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Compare the last boxed answer of the last turn with the accepted ones."""
        raise NotImplementedError


class ToolBonus:
    """The number of successful tool calls of a trajectory whose answer is right, else 0."""

    def __init__(self, config: ToolBonusConfig) -> None:
        self.config = config

    def __call__(self, group: Group) -> Sequence[RewardResult]:
        """One result for each trajectory."""
        raise NotImplementedError


def format_reward(trajectory: Trajectory, task: Task) -> RewardResult:
    """1 if every turn has exactly one block and the last one answers, else 0."""
    raise NotImplementedError
