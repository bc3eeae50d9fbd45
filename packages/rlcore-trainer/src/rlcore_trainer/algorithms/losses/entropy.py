"""The entropy bonus.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

from torch import Tensor


def entropy_bonus(entropy_M: Tensor, weights_M: Tensor) -> Tensor:
    """Return the negative weighted entropy in nats. Added to the loss, a positive coefficient increases entropy."""
    return -(weights_M * entropy_M).sum()
