"""The covariance of log-probability and advantage, by which some losses select tokens.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def covariances(logprobs_M: Tensor, advantages_M: Tensor) -> Tensor:
    """Return the part of each token in the covariance over the micro-batch (Cui et al. 2025, arXiv 2505.22617, eq. 10).

    ``(log π - mean log π) (A - mean A)``. Frequent tokens with a high advantage have the largest values, and training
    on them reduces the entropy most.
    """
    return (logprobs_M - logprobs_M.mean()) * (advantages_M - advantages_M.mean())


def selected_count(share: float, logprobs_M: Tensor) -> int:
    """Return the number of tokens that a share of the micro-batch is: at least one, if there are any."""
    return min(len(logprobs_M), max(1, int(share * len(logprobs_M))))
