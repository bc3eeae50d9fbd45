"""Reward penalties applied before training.

Axes: ``N`` trajectories.
"""

from __future__ import annotations

import torch
from torch import Tensor


def overlong_penalty(lengths_N: Tensor, *, max_response_tokens: int, buffer: int, penalty: float) -> Tensor:
    """Return the reward penalty of trajectories near the length limit (DAPO, arXiv 2503.14476, eq. 13).

    The penalty is 0 up to ``max_response_tokens - buffer``, rises linearly to ``penalty`` at the limit and is constant
    beyond it. A ``buffer`` of 0 disables the penalty.

    Args:
        lengths_N: number of tokens that the policy wrote
        max_response_tokens: the length limit
        buffer: number of tokens before the limit over which the penalty rises
        penalty: penalty at the limit, in units of reward

    Returns:
        ``penalty_N`` in float64, nonnegative, to be subtracted from the reward.
    """
    lengths_N = lengths_N.to(torch.float64)
    if buffer == 0:
        return torch.zeros_like(lengths_N)
    return penalty * ((lengths_N - (max_response_tokens - buffer)) / buffer).clamp(0.0, 1.0)
