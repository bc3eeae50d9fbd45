"""``pass-at-k``: best reward of a group minus second-best reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.advantages.grpo import EPSILON
from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True)
def pass_at_k(
    rewards_N: Tensor, groups_N: Tensor, epsilon: float = EPSILON, *, normalise_by_std: bool = True
) -> tuple[Tensor, dict[str, float]]:
    """Return each trajectory's contribution to the maximum reward of its group (Tang et al. 2025, arXiv 2503.19595).

    ``A_i = max_j R_j − max_{j≠i} R_j``: the best trajectory gets its lead over the second best, and all others get 0.
    Trajectories tied for the best reward also get 0. With ``normalise_by_std``, the result is divided by the group's
    ``std + 1e-6``.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order; a group contains the k attempts
        epsilon: added to the standard deviation
        normalise_by_std: divide a group's advantages by its standard deviation
    """
    import torch

    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    grouped = GroupedRewards(rewards_N, groups_N)
    is_best_N = grouped.rewards_N == grouped.of_each_N(grouped.highest_P)
    is_only_best_N = is_best_N & (grouped.of_each_N(grouped.sums_P(is_best_N.to(grouped.rewards_N.dtype))) == 1)
    others_N = grouped.rewards_N.masked_fill(is_best_N, -torch.inf)
    second_P = torch.full_like(grouped.highest_P, -torch.inf).scatter_reduce(0, grouped.index_N, others_N, "amax")
    lead_N = grouped.rewards_N - grouped.of_each_N(second_P.masked_fill(grouped.alone_P, 0.0))
    advantages_N = torch.where(is_only_best_N, lead_N, torch.zeros_like(lead_N))
    if normalise_by_std:
        advantages_N = advantages_N / (grouped.of_each_N(grouped.spreads_P()) + epsilon)
    return advantages_N, grouped.metrics()
