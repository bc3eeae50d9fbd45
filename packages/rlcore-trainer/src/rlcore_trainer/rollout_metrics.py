"""The numbers of a step's scored groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlcore.evaluation import summarise
from rlcore.types import Group


def rollout_metrics(groups: Sequence[Group], *, success: float) -> dict[str, float]:
    """What the rollouts of a step were like. Means are over scored trajectories where a score is meant.

    ``tokens/sampled``, ``end/REASON`` and ``not_scored`` are counts; ``tools/…`` and ``info/…`` are means per
    trajectory of what the environments counted.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    summary = summarise(groups, success=success)
    metrics: dict[str, float] = {}
    if summary.reward is not None and summary.accuracy is not None:
        metrics |= {"reward/mean": summary.reward, "accuracy": summary.accuracy}
    metrics |= {f"reward/{id}": value for id, value in summary.rewards.items()}
    metrics |= {"tokens/sampled": summary.tokens * summary.trajectories, "turns/mean": summary.turns}
    metrics |= {f"end/{reason}": float(count) for reason, count in summary.end_reasons.items()}
    metrics["not_scored"] = float(summary.trajectories - summary.scored)
    sums = {"tool_calls": 0.0, "tool_errors": 0.0}
    for trajectory in trajectories:
        for name, value in trajectory.metrics.items():
            sums[name] = sums.get(name, 0.0) + value
    names = {"tool_calls": "tools/calls", "tool_errors": "tools/errors"}
    for name, value in sums.items():
        name = names.get(name, name if name.startswith("tools/") else f"info/{name}")
        metrics[name] = value / max(1, len(trajectories))
    return metrics


def evaluation_metrics(groups: Sequence[Group], *, success: float) -> dict[str, float]:
    """Accuracy and reward on held-out tasks, and how many trajectories could not be scored."""
    summary = summarise(groups, success=success)
    metrics = {"evaluation/not_scored": float(summary.trajectories - summary.scored)}
    if summary.accuracy is not None and summary.reward is not None:
        metrics |= {"evaluation/accuracy": summary.accuracy, "evaluation/reward": summary.reward}
    return metrics


def usable(groups: Iterable[Group]) -> list[Group]:
    """The groups with only their scored trajectories.

    A group that failures have left with a single member out of several has nothing to be compared with and is left
    out too.
    """
    kept = []
    for group in groups:
        scored = tuple(t for t in group.trajectories if t.reward is not None)
        if len(scored) > 1 or (scored and len(group.trajectories) == 1):
            kept.append(Group(task=group.task, trajectories=scored))
    return kept
