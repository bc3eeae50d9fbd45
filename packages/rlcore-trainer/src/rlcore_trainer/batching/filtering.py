"""Drop groups without a learning signal, based on their rewards. A group is kept or dropped as a unit."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

from rlcore.types import Group

Metric = Literal["none", "reward", "accuracy", "all-wrong"]
Reason = Literal["all_right", "all_wrong", "equal", "not_scored"]
REASONS: tuple[Reason, ...] = get_args(Reason)


def verdict(group: Group, metric: Metric, success: float) -> Reason | None:
    """Return why a group is dropped, or None if it is kept.

    ``reward`` drops a group whose rewards are all equal. ``accuracy`` drops a group whose trajectories are all correct
    or all wrong (DAPO, arXiv 2503.14476, eq. 11: 0 < correct < G), and ``all-wrong`` only a group that is all wrong. A
    trajectory is correct if its reward is at least ``success``. Trajectories without a score are ignored. A group of
    several trajectories with fewer than two scores is always dropped. A group of one has no siblings to compare with
    and is only dropped by ``all-wrong`` or because of a missing score.
    """
    rewards = _rewards(group)
    alone = len(group.trajectories) == 1
    if not rewards or (len(rewards) < 2 and not alone):
        return "not_scored"
    right = sum(reward >= success for reward in rewards)
    match metric:
        case "reward" if not alone and len(set(rewards)) == 1:
            return "equal"
        case "accuracy" if not alone and right == len(rewards):
            return "all_right"
        case "accuracy" if not alone and not right:
            return "all_wrong"
        case "all-wrong" if not right:
            return "all_wrong"
    return None


def sift(groups: Iterable[Group], metric: Metric, success: float) -> tuple[list[Group], Counter[Reason]]:
    """Return the kept groups in order, and the number of dropped groups by reason."""
    kept, reasons = [], Counter[Reason]()
    for group in groups:
        reason = verdict(group, metric, success)
        if reason is None:
            kept.append(group)
        else:
            reasons[reason] += 1
    return kept, reasons


def spread(group: Group) -> float:
    """Return the population standard deviation of a group's rewards; exactly 0 if they are equal."""
    rewards = _rewards(group)
    return statistics.pstdev(rewards) if rewards else 0.0


def usable(groups: Iterable[Group]) -> list[Group]:
    """Return the groups with only their scored trajectories.

    Groups without a scored trajectory are omitted, and so are groups of several trajectories with only one scored,
    because it has no siblings to compare with.
    """
    kept = []
    for group in groups:
        scored = tuple(t for t in group.trajectories if t.reward is not None)
        if len(scored) > 1 or (scored and len(group.trajectories) == 1):
            kept.append(Group(task=group.task, trajectories=scored))
    return kept


def _rewards(group: Group) -> list[float]:
    return [reward for reward in group.rewards_G if reward is not None]
