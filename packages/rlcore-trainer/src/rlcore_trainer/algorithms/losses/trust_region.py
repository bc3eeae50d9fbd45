"""The policy gradient without the tokens that have left a trust region.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics
from rlcore_trainer.algorithms.losses.surrogate import clip_shares


def trust_region_loss(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    distance_M: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    largest_ratio: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return ``-sg[min(r, largest_ratio)] A log π`` over the tokens that no mask removes.

    A token is removed if its probability has moved in the direction of its advantage, further than its bound.

    Args:
        logprobs_M: log-probabilities, differentiable
        old_logprobs_M: log-probabilities before the first update
        advantages_M: advantages
        weights_M: token weights
        distance_M: how far the policy has moved at each token, not negative
        clip_low: bound of the distance where the probability has fallen
        clip_high: bound of the distance where the probability has risen
        largest_ratio: bound of the importance weight

    Returns:
        The loss, and the metrics of `clip`.
    """
    with torch.no_grad():
        ratio_M = bounded_exp(logprobs_M - old_logprobs_M)
        # A distance that is not a number is far: rounding can put a probability above 1.
        low_M = (advantages_M < 0) & (logprobs_M < old_logprobs_M) & ~(distance_M <= clip_low)
        high_M = (advantages_M > 0) & (logprobs_M > old_logprobs_M) & ~(distance_M <= clip_high)
        factors_M = ratio_M.clamp(max=largest_ratio).masked_fill(low_M | high_M, 0.0)
        metrics = clip_shares(low_M, high_M, weights_M)
    loss = -(weights_M * factors_M * advantages_M * logprobs_M).sum()
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
