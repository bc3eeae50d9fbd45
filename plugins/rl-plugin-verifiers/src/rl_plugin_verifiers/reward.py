"""The score of a taskset."""

from __future__ import annotations

from rlcore.types import RewardResult, Task, Trajectory

from rl_plugin_verifiers.environment import METRIC, REWARD, TOTAL


def verifiers_score(trajectory: Trajectory, task: Task) -> RewardResult:
    """The weighted sum of the taskset's rewards. Its rewards and metrics are components with their own names."""
    value = trajectory.metrics.get(TOTAL)
    if value is None:
        error = "the taskset reported no score: use the environment verifiers"
        return RewardResult(value=None, error=error, error_kind="not reported")
    components = {
        name.removeprefix(prefix): score
        for prefix in (METRIC, REWARD)
        for name, score in trajectory.metrics.items()
        if name.startswith(prefix)
    }
    return RewardResult(value=value, components=components)
