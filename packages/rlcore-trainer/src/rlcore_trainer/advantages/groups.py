"""Advantages of whole trajectories, from the rewards of their group.

Axes: ``N`` the scored trajectories of a rollout; ``P`` groups. Trajectories without a score never come here: they
belong to no group's statistics and to no loss. Each function returns ``advantages_N`` in the unit of the reward (of its
standard deviation where it divides by one) and the metric ``groups/equal``, the share of groups from which nothing is
learnt because all their rewards are equal: those get exactly 0. A trajectory alone in its group has nothing to be
compared with, so its advantage is its reward. A reward that is not finite raises `ValueError`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.advantages.statistics import GroupedRewards

EPSILON = 1e-6
"""Added to the standard deviation that a group's advantages are divided by."""

Advantages = tuple[Tensor, dict[str, float]]


def grpo(rewards_N: Tensor, groups_N: Tensor, *, normalise_by_std: bool = True, epsilon: float = EPSILON) -> Advantages:
    """How much better than its group a trajectory did (Shao et al. 2024, DeepSeekMath, arXiv 2402.03300, §4.1.2).

    ``A = (R − mean) / (std + 1e-6)`` with the unbiased standard deviation of the group; without ``normalise_by_std``
    only the mean is taken off. A group of one has mean 0 and standard deviation 1.

    Args:
        rewards_N: finite rewards
        groups_N: the group of each trajectory, integers in any order
        normalise_by_std: divide by the group's standard deviation
        epsilon: added to it
    """
    grouped = GroupedRewards(rewards_N, groups_N)
    centred_N = grouped.against(grouped.means_P())
    if not normalise_by_std:
        return centred_N, grouped.metrics()
    return centred_N / (grouped.of_each_N(grouped.spreads_P()) + epsilon), grouped.metrics()


def dr_grpo(rewards_N: Tensor, groups_N: Tensor) -> Advantages:
    """GRPO without the standard deviation (Liu et al. 2025, Dr. GRPO, arXiv 2503.20783): ``A = R − mean``.

    Its expected gradient is (G − 1)/G of the true one in every group, whatever its rewards spread.
    """
    return grpo(rewards_N, groups_N, normalise_by_std=False)


def rloo(rewards_N: Tensor, groups_N: Tensor) -> Advantages:
    """Reward minus the mean of the *others* in its group (Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740).

    ``A_i = R_i − Σ_{j≠i} R_j / (G − 1) = G/(G − 1) · (R_i − mean)``: the baseline does not know R_i, so the gradient
    is unbiased.
    """
    grouped = GroupedRewards(rewards_N, groups_N)
    factors_P = grouped.counts_P / (grouped.counts_P - 1).clamp(min=1)
    return grouped.against(grouped.means_P()) * grouped.of_each_N(factors_P), grouped.metrics()


def opo(rewards_N: Tensor, groups_N: Tensor, lengths_N: Tensor) -> Advantages:
    """Reward minus its group's mean by length (Hao et al. 2025, OPO, arXiv 2505.23585).

    ``A_i = R_i − Σ_j l_j R_j / Σ_j l_j``: the baseline of least variance when the squared norm of a trajectory's
    gradient grows as its length.

    Args:
        rewards_N: finite rewards
        groups_N: the group of each trajectory, integers in any order
        lengths_N: how many tokens the policy wrote; in a group without any, the plain mean is taken
    """
    grouped = GroupedRewards(rewards_N, groups_N)
    return grouped.against(grouped.means_P(weights_N=lengths_N)), grouped.metrics()


def pass_at_k(
    rewards_N: Tensor, groups_N: Tensor, *, normalise_by_std: bool = True, epsilon: float = EPSILON
) -> Advantages:
    """What each trajectory adds to the best of its group (Tang et al. 2025, arXiv 2503.19595).

    ``A_i = max_j R_j − max_{j≠i} R_j``: the best one gets its lead over the second best, all others 0; two that share
    the lead get 0. Over ``std + 1e-6`` of the group when normalised.

    Args:
        rewards_N: finite rewards
        groups_N: the group of each trajectory, integers in any order; a group is the k attempts
        normalise_by_std: divide by the group's standard deviation
        epsilon: added to it
    """
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
