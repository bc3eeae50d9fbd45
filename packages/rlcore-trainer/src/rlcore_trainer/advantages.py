"""Advantage estimators as pure functions.

Axes: ``N`` the scored trajectories of a step. Trajectories without a score never come here: they belong to no group's
statistics and to no loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-6


def grpo(rewards_N: Tensor, groups_N: Tensor, *, normalise_by_std: bool = True) -> tuple[Tensor, dict[str, float]]:
    """How much better than its group a trajectory did (Shao et al. 2024, DeepSeekMath §4.1.2).

    ``A = (R - mean) / (std + 1e-6)`` with the unbiased standard deviation of the group; without
    ``normalise_by_std`` only the mean is taken off (Liu et al. 2025, Dr. GRPO). A group of one has mean 0 and
    standard deviation 1, so its advantage is its reward. Equal rewards give zero.

    Args:
        rewards_N: finite rewards
        groups_N: the group of each trajectory, integers in any order
        normalise_by_std: divide by the group's standard deviation

    Returns:
        ``advantages_N`` and ``groups/equal``, the share of groups from which nothing can be learnt because all their
        rewards are equal.
    """
    rewards_N = rewards_N if rewards_N.is_floating_point() else rewards_N.to(torch.float32)
    _, index_N = torch.unique(groups_N, return_inverse=True)
    groups = int(index_N.max()) + 1 if len(index_N) else 0
    zeros_P = torch.zeros(groups, dtype=rewards_N.dtype, device=rewards_N.device)
    counts_P = zeros_P.index_add(0, index_N, torch.ones_like(rewards_N))
    alone_P = counts_P == 1
    mean_P = (zeros_P.index_add(0, index_N, rewards_N) / counts_P).masked_fill(alone_P, 0.0)
    lowest_P = zeros_P.scatter_reduce(0, index_N, rewards_N, "amin", include_self=False)
    highest_P = zeros_P.scatter_reduce(0, index_N, rewards_N, "amax", include_self=False)
    equal_P = (lowest_P == highest_P) & ~alone_P
    # The mean of equal numbers may differ from them in the last bit, which 1e-6 would blow up.
    centred_N = (rewards_N - mean_P[index_N]).masked_fill(equal_P[index_N], 0.0)
    metrics = {"groups/equal": float(equal_P.float().mean()) if groups else 0.0}
    if not normalise_by_std:
        return centred_N, metrics
    squares_P = zeros_P.index_add(0, index_N, centred_N.square())
    std_P = (squares_P / (counts_P - 1).clamp(min=1)).sqrt().masked_fill(alone_P, 1.0)
    return centred_N / (std_P[index_N] + EPSILON), metrics
