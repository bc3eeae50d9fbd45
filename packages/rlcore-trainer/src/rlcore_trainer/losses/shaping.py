"""What is taken off a reward before anything is learnt from it.

Axes: ``N`` trajectories.
"""

from __future__ import annotations

import torch
from torch import Tensor


def overlong_penalty(lengths_N: Tensor, *, max_response_tokens: int, buffer: int, penalty: float) -> Tensor:
    """What a trajectory loses for coming near the limit of its length (DAPO, arXiv 2503.14476, eq. 13).

    0 up to ``max_response_tokens - buffer``, from there rising evenly to ``penalty`` at the limit and staying there.
    A ``buffer`` of 0 has no penalty at all.

    Args:
        lengths_N: tokens that the policy wrote
        max_response_tokens: the limit
        buffer: tokens before the limit over which the penalty rises
        penalty: at the limit, in units of reward

    Returns:
        ``penalty_N`` in float64, never negative: to be subtracted.
    """
    lengths_N = lengths_N.to(torch.float64)
    if buffer == 0:
        return torch.zeros_like(lengths_N)
    return penalty * ((lengths_N - (max_response_tokens - buffer)) / buffer).clamp(0.0, 1.0)
