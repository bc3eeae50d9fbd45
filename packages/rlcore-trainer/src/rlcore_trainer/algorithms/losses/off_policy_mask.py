"""Which tokens of bad trajectories are left out because the policy has moved away from them.

Axes: ``M`` the trained tokens of a micro-batch, grouped by sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.algorithms.losses.ratios import sequence_sums


@torch.no_grad()
def off_policy_mask(
    logprobs_M: Tensor, sampling_logprobs_M: Tensor, advantages_M: Tensor, sequence_M: Tensor, *, threshold: float
) -> Tensor:
    """Return True for tokens that are kept (DeepSeek-V3.2, arXiv 2512.02556, eq. 9).

    A token with a negative advantage is left out if the mean of ``log μ - log π`` over its sequence, where μ has
    sampled it, is above the threshold.

    Args:
        logprobs_M: log-probabilities under the current policy
        sampling_logprobs_M: log-probabilities under the policy that sampled; NaN is treated as no difference
        advantages_M: advantages
        sequence_M: a label for each token; adjacent tokens with the same label belong to one sequence
        threshold: in nats per token
    """
    sums_M, counts_M = sequence_sums((sampling_logprobs_M - logprobs_M).nan_to_num(nan=0.0), sequence_M)
    return (advantages_M >= 0) | (sums_M / counts_M <= threshold)
