"""Which groups can teach nothing, by their rewards alone. Groups stay whole: all of a group goes, or none of it."""

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
    """Why a group goes, or None when it stays.

    ``reward`` lets a group go when its rewards are equal, ``accuracy`` when its trajectories are all right or all
    wrong (DAPO, arXiv 2503.14476, eq. 11: 0 < right < G), ``all-wrong`` only in the second case; right is a reward of
    at least ``success``. Trajectories without a score do not count, and a group that they leave with fewer than two
    members out of several goes whatever the metric. A group of one has no siblings to be equal to: only ``all-wrong``
    and a missing score let it go.
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
    """The groups that stay, in their order, and how many went for which reason."""
    kept, reasons = [], Counter[Reason]()
    for group in groups:
        reason = verdict(group, metric, success)
        if reason is None:
            kept.append(group)
        else:
            reasons[reason] += 1
    return kept, reasons


def spread(group: Group) -> float:
    """The population standard deviation of a group's scored rewards, exactly 0 where they are equal."""
    rewards = _rewards(group)
    return statistics.pstdev(rewards) if rewards else 0.0


def _rewards(group: Group) -> list[float]:
    return [reward for reward in group.rewards_G if reward is not None]
