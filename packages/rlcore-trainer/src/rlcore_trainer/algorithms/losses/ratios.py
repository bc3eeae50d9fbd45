"""Bounded probability ratios of tokens and sequences.

Axes: ``M`` the trained tokens of a micro-batch, grouped by sequence; ``S`` its sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Log-ratios are clamped to ± this value. Ratios of 5e8 and 2e-9 already mean that the two policies are unrelated, and
the square of 5e8 is still finite in float32. The gradient is zero outside the bounds."""


def bounded_exp(log_ratio_M: Tensor) -> Tensor:
    """Return ``exp`` of log-ratios in nats, clamped to ±20."""
    return log_ratio_M.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def sequence_sums(values_M: Tensor, sequence_M: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each token, the sum of its sequence's values and the number of tokens in the sequence.

    Args:
        values_M: per-token values, differentiable
        sequence_M: a label for each token; adjacent tokens with the same label belong to one sequence
    """
    _, index_M, counts_S = torch.unique_consecutive(sequence_M, return_inverse=True, return_counts=True)
    sums_S = values_M.new_zeros(len(counts_S)).index_add(0, index_M, values_M)
    return sums_S[index_M], counts_S[index_M]


def sequence_log_ratio(logprobs_M: Tensor, old_logprobs_M: Tensor, sequence_M: Tensor) -> Tensor:
    """Return each token's mean sequence log-ratio, in nats per token (GSPO, arXiv 2507.18071, eq. 7)."""
    sums_M, counts_M = sequence_sums(logprobs_M - old_logprobs_M, sequence_M)
    return sums_M / counts_M


def ratio_metrics(ratio_M: Tensor, logprobs_M: Tensor, old_logprobs_M: Tensor, weights_M: Tensor) -> dict[str, Tensor]:
    """Measure how far the policy has moved since the rollout.

    Returns:
        ``ratio/max`` over tokens with nonzero weight, and ``kl/old``, the weighted mean of log π_old - log π (nats), an
        estimate of KL(π_old, π).
    """
    with torch.no_grad():
        largest = (ratio_M * (weights_M > 0)).max() if len(ratio_M) else ratio_M.new_zeros(())
        return {"ratio/max": largest, "kl/old": (weights_M * (old_logprobs_M - logprobs_M)).sum()}
