"""``none``: rewards are measured, but not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage()
def none(rewards_N: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return zero for every trajectory, so that only other terms train the policy, such as distillation.

    Args:
        rewards_N: finite rewards
    """
    return rewards_N.new_zeros(rewards_N.shape), {}
