"""Metrics of scored groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlcore.episodes.answers import cut_by, missed_calls, most_common_share, repeated, written_calls
from rlcore.episodes.evaluation import Summary, by_environment, summaries_of, summarise
from rlcore.types import Group, Trajectory


def rollout_metrics(groups: Sequence[Group], *, success: float, max_new_tokens: int = 256) -> dict[str, float]:
    """Return the metrics of a step's rollouts. Means of scores are over scored trajectories only.

    ``tokens/sampled``, ``stop/REASON``, ``failure/BOUNDARY``, ``reward_error/ID/KIND`` and ``not_scored`` are counts;
    ``tools/…`` and ``info/…`` are means per trajectory of the environment's counters. ``max_new_tokens`` is the limit
    of a generation. In a run with several environments, the metrics of each one follow as ``environment/NAME/…``.
    """
    metrics = _metrics_of(groups, success, max_new_tokens)
    for name, part in by_environment(groups).items():
        metrics |= {
            f"environment/{name}/{key}": value for key, value in _metrics_of(part, success, max_new_tokens).items()
        }
    return metrics


def _metrics_of(groups: Sequence[Group], success: float, max_new_tokens: int) -> dict[str, float]:
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    summary = summarise(groups, success=success)
    metrics: dict[str, float] = {}
    if summary.reward is not None and summary.accuracy is not None:
        metrics |= {"reward/mean": summary.reward, "accuracy": summary.accuracy}
    found = {**summary.roles, **summary.rewards, **summary.components}
    metrics |= {f"reward/{name}": value for name, value in found.items()}
    metrics |= {"tokens/sampled": summary.tokens * summary.trajectories, "turns/mean": summary.turns}
    metrics |= {f"stop/{reason}": float(count) for reason, count in summary.stops.items()}
    metrics |= {f"failure/{boundary}": float(count) for boundary, count in summary.failures.items()}
    metrics |= {f"reward_error/{name}": float(count) for name, count in summary.reward_errors.items()}
    metrics["not_scored"] = float(summary.trajectories - summary.scored)
    sums = {"tool_calls": 0.0, "tool_errors": 0.0}
    for trajectory in trajectories:
        for name, value in trajectory.metrics.items():
            sums[name] = sums.get(name, 0.0) + value
    names = {"tool_calls": "tools/calls", "tool_errors": "tools/errors"}
    for name, value in sums.items():
        name = names.get(name, name if name.startswith("tools/") else f"info/{name}")
        metrics[name] = value / max(1, len(trajectories))
    return metrics | _answers(groups, trajectories, max_new_tokens)


def _answers(groups: Sequence[Group], trajectories: Sequence[Trajectory], max_new_tokens: int) -> dict[str, float]:
    """What a diagnosis needs to know about answers."""
    cut = Counter(limit for one in trajectories if (limit := cut_by(one, max_new_tokens)) is not None)
    metrics = {f"length/{limit}": float(count) for limit, count in cut.items()}
    if any(one.tools for one in trajectories):
        metrics["tools/missed"] = sum(len(list(missed_calls(one))) for one in trajectories) / len(trajectories)
    if calls := [call for one in trajectories for call in written_calls(one)]:
        metrics["tools/unreadable"] = sum(call.error is not None for call in calls) / len(calls)
    if (share := most_common_share(groups)) is not None:
        metrics["answers/same"] = share
    if groups:
        same, contradictory = zip(*map(repeated, groups), strict=True)
        metrics["groups/same_answers"] = sum(same) / len(groups)
        metrics["groups/contradictory"] = sum(contradictory) / len(groups)
    return metrics


def evaluation_metrics(groups: Sequence[Group], *, success: float) -> dict[str, float]:
    """Return accuracy and reward on held-out tasks, and the number of unscored trajectories.

    With several rewards, the mean of each is ``evaluation/reward/ID``, also of those with weight 0. In a run with
    several environments, the metrics of each one follow as ``evaluation/NAME/…``.
    """
    metrics = _evaluated("evaluation", summarise(groups, success=success))
    for name, summary in summaries_of(groups, success=success).items():
        metrics |= _evaluated(f"evaluation/{name}", summary)
    return metrics


def _evaluated(prefix: str, summary: Summary) -> dict[str, float]:
    metrics = {f"{prefix}/not_scored": float(summary.trajectories - summary.scored)}
    if summary.accuracy is not None and summary.reward is not None:
        metrics |= {f"{prefix}/accuracy": summary.accuracy, f"{prefix}/reward": summary.reward}
        metrics |= {f"{prefix}/{role}/reward": value for role, value in summary.roles.items()}
        if len(summary.rewards) > 1:
            metrics |= {f"{prefix}/reward/{id}": value for id, value in summary.rewards.items()}
    return metrics
