"""``vespo``: a smooth weight of a trajectory, by the product of its probability ratios."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_LOG_RATIO = math.log(1e-8)
"""Lower bound of the log-ratio of a trajectory, as in the published code."""
Power = Annotated[float, Field(ge=0)]
Decay = Annotated[float, Field(gt=0)]


@loss(token_wise=False, level="sequence", weighs_rollout=True)
def vespo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    factors_M: Tensor,
    *,
    positive_power: Power = 2.0,
    positive_decay: Decay = 3.0,
    negative_power: Power = 3.0,
    negative_decay: Decay = 2.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of variational sequence-level soft policy optimisation (2026, VESPO, arXiv 2602.10693).

    ``-sg[φ(w)] A log π`` with ``φ(w) = e^λ w^k e^{-λ w}``, where w is the product over the trajectory of its ratios and
    of its rollout importance weights, k the power and λ the decay. ``φ(1) = 1``, and φ goes to 0 on both sides.

    Keys:
        positive_power: how fast the weight falls for ratios below 1, where the advantage is positive
        positive_decay: how fast the weight falls for ratios above 1, where the advantage is positive
        negative_power: how fast the weight falls for ratios below 1, where the advantage is negative
        negative_decay: how fast the weight falls for ratios above 1, where the advantage is negative

    Returns:
        The loss, ``vespo/weight`` (the mean of φ), ``ratio/max`` of trajectories, and ``kl/old``.
    """
    import torch

    from rlcore_trainer.algorithms.losses.ratios import LARGEST_LOG_RATIO, ratio_metrics, sequence_sums

    with torch.no_grad():
        log_ratio_M = (logprobs_M - old_logprobs_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        log_ratio_M = log_ratio_M + factors_M.log().clamp(SMALLEST_LOG_RATIO, LARGEST_LOG_RATIO)
        log_ratio_M = sequence_sums(log_ratio_M, sequence_M)[0].clamp(SMALLEST_LOG_RATIO, LARGEST_LOG_RATIO)
        ratio_M, good_M = log_ratio_M.exp(), advantages_M >= 0
        power_M = torch.full_like(ratio_M, negative_power).masked_fill(good_M, positive_power)
        decay_M = torch.full_like(ratio_M, negative_decay).masked_fill(good_M, positive_decay)
        phi_M = (decay_M + power_M * log_ratio_M - decay_M * ratio_M).exp()
        metrics = {"vespo/weight": (weights_M * phi_M).sum()}
    loss = -(weights_M * phi_M * advantages_M * logprobs_M).sum()
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
