"""The loss of a critic.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(
    values_M: Tensor, old_values_M: Tensor, returns_M: Tensor, weights_M: Tensor, *, clip: float | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return half the squared error of values, with PPO-style value clipping.

    ``½ max((V - R)², (clip(V, V_old ± clip) - R)²)``, weighted. A value that has moved by more than ``clip`` towards
    its return has no gradient. The PPO papers have no equation for it; the form follows the first public PPO code.

    Args:
        values_M: values of the state before each token, differentiable
        old_values_M: values before the first update
        returns_M: targets of the values
        weights_M: token weights, as for a policy loss
        clip: how far a value may move, in units of reward; None means no limit

    Returns:
        The loss; ``critic/clip_fraction``, the share of tokens whose gradient was removed; ``critic/mean``, the mean
        value.
    """
    loss_M = 0.5 * (values_M - returns_M).square()
    removed_M = torch.zeros_like(loss_M, dtype=torch.bool)
    if clip is not None:
        clipped_M = 0.5 * (values_M.clamp(old_values_M - clip, old_values_M + clip) - returns_M).square()
        removed_M = clipped_M > loss_M
        loss_M = torch.maximum(loss_M, clipped_M)
    metrics = {
        "critic/clip_fraction": (weights_M * removed_M).sum(),
        "critic/mean": (weights_M * values_M.detach()).sum(),
    }
    return (weights_M * loss_M).sum(), metrics
