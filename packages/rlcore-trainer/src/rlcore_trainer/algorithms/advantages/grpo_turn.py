"""``grpo-turn``: turn rewards normalised by the mean and standard deviation over all turns of the group.

Axes: ``N`` the scored trajectories of a rollout; ``T`` tokens, padded right; ``U`` policy turns, padded right; ``K``
all turns with a written token, concatenated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.advantages.grpo import EPSILON
from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True, reads_tokens=True)
def grpo_turn(
    rewards_NT: Tensor,
    groups_N: Tensor,
    turns_NT: Tensor,
    mask_NT: Tensor,
    epsilon: float = EPSILON,
    *,
    normalise_by_std: bool = True,
) -> tuple[Tensor, dict[str, float]]:
    """Return group-relative advantages of turns with process supervision (DeepSeekMath, arXiv 2402.03300, §4.1.3).

    ``r̃ = (r − mean) / (std + 1e-6)`` over the rewards r of all turns of a group, and ``A_t`` is the sum of ``r̃`` over
    the token's turn and all later turns. With one turn per trajectory, this equals `grpo`. A turn without a reward
    counts as 0. A group of one trajectory has no siblings to compare with and uses mean 0 and standard deviation 1.

    Args:
        rewards_NT: finite rewards of each token; the reward of a turn is the sum over its written tokens
        groups_N: group label of each trajectory, integers in any order
        turns_NT: turn index of each written token, from 0, ascending along a row
        mask_NT: bool, True for tokens that the policy wrote
        epsilon: added to the standard deviation
        normalise_by_std: divide the rewards of a group's turns by their standard deviation
    """
    import torch

    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    width = max(1, int(turns_NT.max()) + 1) if turns_NT.numel() else 1
    place_NT = torch.arange(len(turns_NT), device=turns_NT.device)[:, None] * width + turns_NT
    place_K, turn_of_token = torch.unique(place_NT[mask_NT], return_inverse=True)
    rewards_K = rewards_NT.new_zeros(len(place_K)).index_add(0, turn_of_token, rewards_NT[mask_NT])
    owner_K = place_K // width
    grouped = GroupedRewards(rewards_K, groups_N[owner_K])
    normalised_K = grouped.against(grouped.means_P())
    if normalise_by_std:
        normalised_K = normalised_K / (grouped.of_each_N(grouped.spreads_P()) + epsilon)
    _, group_N, counts_P = torch.unique(groups_N, return_inverse=True, return_counts=True)
    alone_K = (counts_P[group_N] == 1)[owner_K]
    normalised_K = torch.where(alone_K, rewards_K.to(normalised_K), normalised_K)
    turns_NU = normalised_K.new_zeros(len(groups_N) * width).index_copy(0, place_K, normalised_K).view(-1, width)
    later_NU = turns_NU.flip(1).cumsum(1).flip(1)
    advantages_NT = later_NU.gather(1, turns_NT.clamp(min=0)) * mask_NT
    return advantages_NT, grouped.metrics()
