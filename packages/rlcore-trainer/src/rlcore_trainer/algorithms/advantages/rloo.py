"""``rloo``: reward minus the mean of the other rewards in the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True)
def rloo(rewards_N: Tensor, groups_N: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return the reward minus the mean of the *other* rewards in its group.

    Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740.

    ``A_i = R_i − Σ_{j≠i} R_j / (G − 1) = G/(G − 1) · (R_i − mean)``: the baseline is independent of R_i, so the
    gradient is unbiased.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
    """
    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    grouped = GroupedRewards(rewards_N, groups_N)
    factors_P = grouped.counts_P / (grouped.counts_P - 1).clamp(min=1)
    return grouped.against(grouped.means_P()) * grouped.of_each_N(factors_P), grouped.metrics()
