"""The pull towards a reference policy, and how strong it is.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlcore_trainer.losses.ratios import LARGEST_LOG_RATIO, bounded_exp

ESTIMATORS = ("k1", "abs", "mse", "k3")


def kl(
    logprobs_M: Tensor,
    reference_logprobs_M: Tensor,
    estimator: str,
    *,
    clamp: float | None = 10.0,
    old_logprobs_M: Tensor | None = None,
) -> Tensor:
    """Per-token estimate of KL(π, π_ref) in nats from the sampled token alone (Schulman 2020, "Approximating KL").

    With d = log π - log π_ref: ``k1`` is d, ``abs`` is |d|, ``mse`` is d²/2 (also called k2), ``k3`` is
    exp(-d) + d - 1. As a loss on samples of π, ``mse`` has the gradient of KL(π, π_ref) in expectation, ``k3`` that of
    the other direction, KL(π_ref, π), and the gradient of ``k1`` is zero in expectation. Multiplied by the ratio
    π / π_old, ``k1`` and ``k3`` have the gradient of KL(π, π_ref) and stay right off policy (DeepSeek-V3.2, arXiv
    2512.02556, "Unbiased KL Estimate").

    Args:
        logprobs_M: differentiable
        reference_logprobs_M: of the same tokens under π_ref
        estimator: one of ``ESTIMATORS``
        clamp: the largest value of ``k3``, past which it has no gradient; None has no bound but that of d to ±20
        old_logprobs_M: of the policy that sampled; where given, the estimate is multiplied by the ratio

    Raises:
        ValueError: of an unknown estimator.
    """
    difference_M = logprobs_M - reference_logprobs_M
    if estimator == "k1":
        kl_M = difference_M
    elif estimator == "abs":
        kl_M = difference_M.abs()
    elif estimator == "mse":
        kl_M = 0.5 * difference_M.square()
    elif estimator == "k3":
        # The inner clamp keeps exp finite: behind the outer one, infinity would become a gradient of NaN.
        log_ratio_M = (-difference_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        kl_M = torch.expm1(log_ratio_M) - log_ratio_M
        kl_M = kl_M if clamp is None else kl_M.clamp(max=clamp)
    else:
        raise ValueError(f"unknown KL estimator {estimator!r}; known: {', '.join(ESTIMATORS)}")
    return kl_M if old_logprobs_M is None else bounded_exp(logprobs_M - old_logprobs_M) * kl_M


def next_coefficient(
    coefficient: float, measured_kl: float, *, target_kl: float, horizon: int, trajectories: int
) -> float:
    """The coefficient of the KL term after a step (Ziegler et al. 2019, arXiv 1909.08593, §2.2).

    ``coefficient * (1 + clip(measured / target - 1, -0.2, 0.2) * trajectories / horizon)``: it rises while the policy
    is further away than the target. It never falls below zero, and a measurement that is no number leaves it alone.

    Args:
        coefficient: of the step that was measured
        measured_kl: nats a token, mean over the step
        target_kl: what it should be
        horizon: trajectories over which the coefficient settles
        trajectories: of the step
    """
    if math.isnan(measured_kl):
        return coefficient
    error = min(max(measured_kl / target_kl - 1.0, -0.2), 0.2)
    return max(0.0, coefficient * (1.0 + error * trajectories / horizon))
