"""``gdpo``: each reward normalised in its group, before their weighted sum is normalised over the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.advantages.grpo import EPSILON, grpo
from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True, reads_rewards=True)
def gdpo(
    reward_values_NR: Tensor, reward_weights_NR: Tensor, groups_N: Tensor, epsilon: float = EPSILON
) -> tuple[Tensor, dict[str, float]]:
    """Return the advantages of group reward-decoupled normalisation (Liu et al. 2026, GDPO, arXiv 2601.05242).

    ``S = Σ_r w_r (R_r − mean_r) / (std_r + 1e-6)`` with the mean and the unbiased standard deviation of each reward in
    the group, and ``A = (S − mean) / (std + 1e-6)`` over all trajectories of the rollout. Different combinations of
    rewards with the same sum therefore keep different advantages. With one reward, this is `grpo`, normalised again.

    Args:
        reward_values_NR: finite values of each reward
        reward_weights_NR: weight of each reward, which is the same within a group
        groups_N: group label of each trajectory, integers in any order
        epsilon: added to the standard deviations
    """
    import torch

    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    normalised = [grpo(values_N, groups_N, epsilon)[0] for values_N in reward_values_NR.unbind(1)]
    sums_N = (torch.stack(normalised, dim=1) * reward_weights_NR).sum(1)
    whole = torch.zeros_like(groups_N)
    metrics = GroupedRewards(sums_N, groups_N).metrics()
    return grpo(sums_N, whole, epsilon)[0] if len(sums_N) > 1 else torch.zeros_like(sums_N), metrics
