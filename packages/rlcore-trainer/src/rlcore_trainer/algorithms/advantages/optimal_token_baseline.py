"""``optimal-token-baseline``: return minus a baseline for each position, weighted by the gradients up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-8
"""Added to the weights of a position before dividing by their sum."""


@advantage(compares_siblings=True, reads_tokens=True, reads_gradients=True)
def optimal_token_baseline(
    rewards_N: Tensor,
    rewards_NT: Tensor,
    groups_N: Tensor,
    gradient_norms_NT: Tensor,
    mask_NT: Tensor,
    epsilon: float = EPSILON,
) -> tuple[Tensor, dict[str, float]]:
    """Return the return minus the optimal baseline of its position (Li et al. 2026, OTB, arXiv 2602.07078).

    ``A_t = G_t − Σ_i G_{i,t} W_{i,t} / Σ_i W_{i,t}`` over the trajectories i of the group that have a t-th token, where
    ``G_t = Σ_{k≥t} r_k`` and ``W_t = Σ_{k≤t} ‖s_k‖²``. ``‖s‖² = 1 − 2π + Σ_v π_v²`` is the squared norm of the gradient
    of a token's log-probability by the logits. A position that only one trajectory has uses 0 as the baseline.

    Args:
        rewards_N: the sum of the rewards of each trajectory, for the metrics
        rewards_NT: finite rewards of each token
        groups_N: group label of each trajectory, integers in any order
        gradient_norms_NT: ``‖s‖²`` of each written token
        mask_NT: bool, True for tokens that the policy wrote
        epsilon: added to the sum of the weights of a position
    """
    import torch

    from rlcore_trainer.algorithms.advantages.scan import lambda_advantages
    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    metrics = GroupedRewards(rewards_N, groups_N).metrics()
    returns_NT = lambda_advantages(rewards_NT, None, mask_NT, 1.0, 1.0)
    if not returns_NT.numel():
        return returns_NT, metrics
    written_NT = mask_NT.to(returns_NT.dtype)
    energies_NT = (gradient_norms_NT.to(returns_NT.dtype) * written_NT).cumsum(1)
    labels_P, index_N = torch.unique(groups_N, return_inverse=True)
    place_NT = (mask_NT.cumsum(1) - 1).clamp(min=0)  # positions count written tokens only
    cell_K = (index_N[:, None] * mask_NT.shape[1] + place_NT)[mask_NT]
    returns_K, energies_K = returns_NT[mask_NT], energies_NT[mask_NT]
    cells = returns_NT.new_zeros(len(labels_P) * mask_NT.shape[1])
    counts = cells.index_add(0, cell_K, torch.ones_like(returns_K))
    weighted = cells.index_add(0, cell_K, returns_K * energies_K)
    baselines = weighted / (cells.index_add(0, cell_K, energies_K) + epsilon)
    lowest = cells.scatter_reduce(0, cell_K, returns_K, "amin", include_self=False)
    highest = cells.scatter_reduce(0, cell_K, returns_K, "amax", include_self=False)
    several_K = (counts > 1)[cell_K]
    # Equal returns give exactly 0, which the added epsilon would otherwise prevent.
    equal_K = several_K & (lowest == highest)[cell_K]
    advantages_K = (returns_K - torch.where(several_K, baselines[cell_K], 0.0)).masked_fill(equal_K, 0.0)
    return torch.zeros_like(returns_NT).masked_scatter(mask_NT, advantages_K), metrics
