"""``dr-grpo``: reward minus group mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.advantages.grpo import grpo
from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True)
def dr_grpo(rewards_N: Tensor, groups_N: Tensor) -> tuple[Tensor, dict[str, float]]:
    """GRPO without the standard deviation (Liu et al. 2025, Dr. GRPO, arXiv 2503.20783): ``A = R − mean``.

    The expected gradient is (G − 1)/G of the true gradient for every group, regardless of the spread of its rewards.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
    """
    return grpo(rewards_N, groups_N, normalise_by_std=False)
