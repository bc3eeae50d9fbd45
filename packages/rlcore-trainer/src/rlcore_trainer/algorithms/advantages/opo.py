"""``opo``: reward minus the length-weighted group mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True)
def opo(rewards_N: Tensor, groups_N: Tensor, lengths_N: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return the reward minus the length-weighted mean of its group (Hao et al. 2025, OPO, arXiv 2505.23585).

    ``A_i = R_i − Σ_j l_j R_j / Σ_j l_j``: the minimum-variance baseline if the squared gradient norm of a trajectory is
    proportional to its length.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
        lengths_N: number of tokens that the policy wrote; a group without any uses the unweighted mean
    """
    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    grouped = GroupedRewards(rewards_N, groups_N)
    return grouped.against(grouped.means_P(weights_N=lengths_N)), grouped.metrics()
