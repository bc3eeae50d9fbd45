"""``grpo``: reward minus group mean, divided by the group standard deviation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6
"""Added to a group's standard deviation before dividing by it."""


@advantage(compares_siblings=True)
def grpo(
    rewards_N: Tensor,
    groups_N: Tensor,
    epsilon: float = EPSILON,
    *,
    normalise_by_std: bool | Literal["batch"] = True,
) -> tuple[Tensor, dict[str, float]]:
    """Return group-relative advantages (Shao et al. 2024, DeepSeekMath, arXiv 2402.03300, §4.1.2).

    ``A = (R − mean) / (std + 1e-6)`` with the unbiased standard deviation of the group; without ``normalise_by_std``,
    only the mean is subtracted. ``batch`` divides by the standard deviation of all rewards of the rollout (Liu et al.
    2025, arXiv 2508.08221). A group of one uses mean 0 and standard deviation 1. The advantages of a group with equal
    rewards are exactly 0; the metric ``groups/equal`` is the share of such groups.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
        epsilon: added to the standard deviation
        normalise_by_std: divide a group's advantages by its standard deviation; ``batch`` divides all by the standard
            deviation of the rollout's rewards
    """
    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    grouped = GroupedRewards(rewards_N, groups_N)
    centred_N = grouped.against(grouped.means_P())
    if not normalise_by_std:
        return centred_N, grouped.metrics()
    if normalise_by_std == "batch":
        return centred_N / (grouped.spread() + epsilon), grouped.metrics()
    return centred_N / (grouped.of_each_N(grouped.spreads_P()) + epsilon), grouped.metrics()
