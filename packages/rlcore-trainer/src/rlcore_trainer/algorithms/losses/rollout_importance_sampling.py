"""Importance weights for the gap between the sampling engine and the trained policy.

Axes: ``M`` the trained tokens of a micro-batch, grouped by sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.algorithms.losses.ratios import LARGEST_LOG_RATIO, bounded_exp, sequence_sums

MODES = ("none", "truncate", "mask")
LEVELS = ("token", "sequence")


@torch.no_grad()
def rollout_importance_sampling(
    old_logprobs_M: Tensor,
    engine_logprobs_M: Tensor,
    sequence_M: Tensor,
    *,
    mode: str,
    level: str,
    low: float,
    high: float,
    weights_M: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return factors for token weights in the loss that correct for the gap between engine and trainer.

    The ratio is w = π_old / π_engine of the token, or the product over the sequence with ``level="sequence"``.
    ``truncate`` uses min(w, high) (truncated importance sampling: Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training"); ``mask`` uses w between ``low`` and ``high`` and 0 elsewhere (IcePop:
    arXiv 2510.18855); ``none`` uses 1.

    Args:
        old_logprobs_M: log-probabilities under the policy before the first update, in nats
        engine_logprobs_M: log-probabilities from the engine; NaN is treated as no gap
        sequence_M: a label for each token; adjacent tokens with the same label belong to one sequence
        mode: one of ``MODES``
        level: one of ``LEVELS``
        low: the smallest weight that ``mask`` keeps
        high: the largest weight
        weights_M: token weights in the diagnostics, before importance weighting; None uses one over the token count

    Returns:
        ``factors_M``, and these weighted means over tokens: ``rollout_is/factor``; ``rollout_is/high`` and
        ``rollout_is/low``, the shares above ``high`` and below ``low`` that were truncated or masked;
        ``rollout_is/square``, the squared factor, an input of `effective_share`; ``rollout_is/kl``, the k3 estimate of
        KL(engine, policy); ``logprob_gap/mean``. The metrics also include ``rollout_is/ratio/max``, the largest w, and
        ``logprob_gap/max``.

    Raises:
        ValueError: the mode or level is unknown.
    """
    if mode not in MODES or level not in LEVELS:
        raise ValueError(f"unknown rollout importance sampling {mode!r} at {level!r}; modes: {MODES}, levels: {LEVELS}")
    gap_M = torch.where(engine_logprobs_M.isnan(), 0.0, old_logprobs_M - engine_logprobs_M.to(old_logprobs_M))
    log_ratio_M = sequence_sums(gap_M, sequence_M)[0] if level == "sequence" else gap_M
    ratio_M = bounded_exp(log_ratio_M)
    above_M = (ratio_M > high) & (mode != "none")
    below_M = (ratio_M < low) & (mode == "mask")
    if mode == "truncate":
        factors_M = ratio_M.clamp(max=high)
    elif mode == "mask":
        factors_M = ratio_M.masked_fill(above_M | below_M, 0.0)
    else:
        factors_M = torch.ones_like(ratio_M)

    weights_M = torch.ones_like(ratio_M) / max(1, len(ratio_M)) if weights_M is None else weights_M
    bounded_M = gap_M.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    diagnostics = {
        "rollout_is/factor": (weights_M * factors_M).sum(),
        "rollout_is/square": (weights_M * factors_M.square()).sum(),
        "rollout_is/high": (weights_M * above_M).sum(),
        "rollout_is/low": (weights_M * below_M).sum(),
        "rollout_is/kl": (weights_M * (torch.expm1(bounded_M) - bounded_M)).sum(),
        "rollout_is/ratio/max": _largest(ratio_M),
        "logprob_gap/mean": (weights_M * gap_M.abs()).sum(),
        "logprob_gap/max": _largest(gap_M.abs()),
    }
    return factors_M, diagnostics


def effective_share(factor: float, square: float) -> float:
    """Return Kish's effective sample size as a share, from the means of the factors and of their squares.

    Both means must cover a whole mini-batch, because the shares of its parts do not add up to that of the whole.
    """
    return factor**2 / square if square > 0 else 0.0


def _largest(values_M: Tensor) -> Tensor:
    return values_M.max() if len(values_M) else values_M.new_zeros(())
