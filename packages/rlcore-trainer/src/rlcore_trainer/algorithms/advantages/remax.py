"""``remax``: return minus the reward of the greedy answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(needs_baseline=True, reads_tokens=True)
def remax(rewards_NT: Tensor, baselines_N: Tensor, mask_NT: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return each token's return minus the reward of the greedy answer (Li et al. 2023, ReMax, arXiv 2310.10505).

    ``A_t = Σ_{k≥t} r_k − R_greedy``. The greedy answer is independent of the samples, so the gradient is unbiased
    without groups.

    Args:
        rewards_NT: finite rewards of each token
        baselines_N: reward of the greedy answer to each trajectory's prompt
        mask_NT: bool, True for tokens that the policy wrote
    """
    from rlcore_trainer.algorithms.advantages.scan import lambda_advantages, ones_NT

    returns_NT = lambda_advantages(rewards_NT, None, mask_NT, 1.0, 1.0)
    return returns_NT.sub_(ones_NT(mask_NT, returns_NT.dtype) * baselines_N[:, None].to(returns_NT.dtype)), {}
