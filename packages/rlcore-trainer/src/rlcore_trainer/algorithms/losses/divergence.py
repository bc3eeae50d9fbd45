"""KL divergence from a reference policy, and the adaptive KL coefficient.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlcore_trainer.algorithms.losses.ratios import LARGEST_LOG_RATIO, bounded_exp

ESTIMATORS = ("k1", "abs", "mse", "k3", "k1+", "k3+")


def kl(
    logprobs_M: Tensor,
    reference_logprobs_M: Tensor,
    estimator: str,
    *,
    clamp: float | None = 10.0,
    old_logprobs_M: Tensor | None = None,
) -> Tensor:
    """Estimate KL(π, π_ref) for each token from the sampled token, in nats (Schulman 2020, "Approximating KL").

    With d = log π - log π_ref: ``k1`` is d, ``abs`` is |d|, ``mse`` is d²/2 (also called k2), ``k3`` is
    exp(-d) + d - 1. As a loss on samples of π, ``mse`` has the gradient of KL(π, π_ref) in expectation, ``k3`` has the
    gradient of the reverse, KL(π_ref, π), and the gradient of ``k1`` is zero in expectation. Multiplied by the ratio
    π / π_old, ``k1`` and ``k3`` have the gradient of KL(π, π_ref) and remain unbiased off policy (DeepSeek-V3.2, arXiv
    2512.02556, "Unbiased KL Estimate"). ``k1+`` and ``k3+`` have the values of ``k1`` and ``k3`` and the gradient of
    ``mse``.

    Args:
        logprobs_M: log-probabilities under π, differentiable
        reference_logprobs_M: log-probabilities of the same tokens under π_ref
        estimator: one of ``ESTIMATORS``
        clamp: the largest value of ``k3``; larger values have no gradient. None only clamps d to ±20
        old_logprobs_M: log-probabilities under the sampling policy; if given, the estimate is multiplied by the ratio

    Raises:
        ValueError: the estimator is unknown.
    """
    difference_M = logprobs_M - reference_logprobs_M
    if estimator in ("k1+", "k3+"):
        value_M = kl(logprobs_M.detach(), reference_logprobs_M, estimator[:-1], clamp=clamp)
        half_square_M = 0.5 * difference_M.square()
        # In this order, the first difference is exactly zero and the value keeps its precision.
        kl_M = (half_square_M - half_square_M.detach()) + value_M
    elif estimator == "k1":
        kl_M = difference_M
    elif estimator == "abs":
        kl_M = difference_M.abs()
    elif estimator == "mse":
        kl_M = 0.5 * difference_M.square()
    elif estimator == "k3":
        # The inner clamp keeps exp finite. With the outer clamp alone, infinity would produce a NaN gradient.
        log_ratio_M = (-difference_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        kl_M = torch.expm1(log_ratio_M) - log_ratio_M
        kl_M = kl_M if clamp is None else kl_M.clamp(max=clamp)
    else:
        raise ValueError(f"unknown KL estimator {estimator!r}; known: {', '.join(ESTIMATORS)}")
    return kl_M if old_logprobs_M is None else bounded_exp(logprobs_M - old_logprobs_M) * kl_M


def next_coefficient(
    coefficient: float, measured_kl: float, *, target_kl: float, horizon: int, trajectories: int
) -> float:
    """Return the coefficient of the KL term after a step (Ziegler et al. 2019, arXiv 1909.08593, §2.2).

    ``coefficient * (1 + clip(measured / target - 1, -0.2, 0.2) * trajectories / horizon)``: it increases while
    the divergence exceeds the target. The coefficient is never negative, and a NaN measurement leaves it unchanged.

    Args:
        coefficient: the coefficient during the measured step
        measured_kl: mean over the step, in nats per token
        target_kl: the target divergence, in nats per token
        horizon: number of trajectories over which the coefficient settles
        trajectories: number of trajectories in the step
    """
    if math.isnan(measured_kl):
        return coefficient
    error = min(max(measured_kl / target_kl - 1.0, -0.2), 0.2)
    return max(0.0, coefficient * (1.0 + error * trajectories / horizon))
