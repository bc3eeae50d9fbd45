"""``reinforce-plus-plus-baseline``: reward minus group mean, whitened over the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.advantages.dr_grpo import dr_grpo
from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True)
def reinforce_plus_plus_baseline(
    rewards_N: Tensor, groups_N: Tensor, mask_NT: Tensor, *, whiten: bool = True
) -> tuple[Tensor, dict[str, float]]:
    """Return the reward minus its group mean on every token, whitened (Hu et al. 2025, arXiv 2501.03262).

    The standard deviation is computed over the rollout, not per group, so an easy group has no more weight than a hard
    one.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
        mask_NT: bool, True for tokens that the policy wrote
        whiten: normalise the advantages of a rollout's tokens to mean 0 and variance 1
    """
    from rlcore_trainer.algorithms.advantages.scan import ones_NT
    from rlcore_trainer.algorithms.advantages.statistics import whiten_rows

    advantages_N, metrics = dr_grpo(rewards_N, groups_N)
    written_NT = ones_NT(mask_NT, advantages_N.dtype)
    if whiten:
        advantages_N, before = whiten_rows(advantages_N, written_NT.sum(1))
        metrics |= before
    return written_NT.mul_(advantages_N[:, None]), metrics
