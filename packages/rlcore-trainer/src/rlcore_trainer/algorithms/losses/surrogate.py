"""The clipped surrogate shared by several policy losses.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    ratio_M: Tensor, advantages_M: Tensor, weights_M: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return each token's larger loss, unclipped or clipped (PPO, arXiv 1707.06347, eq. 7).

    Returns:
        ``loss_M`` before weighting, and the `clip_shares` of tokens whose gradient was removed.
    """
    free_M = -advantages_M * ratio_M
    clipped_M = -advantages_M * ratio_M.clamp(1 - clip_low, 1 + clip_high)
    with torch.no_grad():
        removed_M = clipped_M > free_M
        metrics = clip_shares(removed_M & (advantages_M < 0), removed_M & (advantages_M > 0), weights_M)
    return torch.maximum(free_M, clipped_M), metrics


def clip_shares(low_M: Tensor, high_M: Tensor, weights_M: Tensor) -> dict[str, Tensor]:
    """Return the weighted token shares ``clip/low`` and ``clip/high``, and their sum ``clip/fraction``."""
    low, high = (weights_M * low_M).sum(), (weights_M * high_M).sum()
    return {"clip/fraction": low + high, "clip/low": low, "clip/high": high}
