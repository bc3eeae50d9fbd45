"""Importance weights for the gap between the engine that sampled and the policy that is trained.

Axes: ``M`` the trained tokens of a micro-batch, sequence after sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.losses.ratios import LARGEST_LOG_RATIO, bounded_exp, sequence_sums

MODES = ("none", "truncate", "mask")
LEVELS = ("token", "sequence")


@torch.no_grad()
def correction(
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
    """What to multiply each token's weight in the loss by, because another program sampled it than the one that learns.

    The factor is w = π_old / π_engine of the token, or with ``level="sequence"`` the product over the sequence.
    ``truncate`` takes min(w, high) (truncated importance sampling: Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training"); ``mask`` takes w between ``low`` and ``high`` and 0 elsewhere (IcePop:
    arXiv 2510.18855); ``none`` takes 1.

    Args:
        old_logprobs_M: of the policy before the first update, nats
        engine_logprobs_M: of the engine; where it is NaN the token counts as having no gap
        sequence_M: a label for each token; neighbours with the same label are one sequence
        mode: one of ``MODES``
        level: one of ``LEVELS``
        low: the smallest weight that ``mask`` keeps
        high: the largest weight
        weights_M: of the tokens in the diagnostics, before the correction; None is one over their number

    Returns:
        ``factors_M``, and of the tokens in the weighted mean: ``correction/factor``; ``correction/high`` and
        ``correction/low``, the shares above ``high`` and below ``low`` that were cut or left out;
        ``correction/square``, the factor squared, from which `effective_share` follows; ``correction/kl``,
        KL(engine, policy) by k3; ``logprob_gap/mean``. Besides, ``correction/ratio/max``, the largest w, and
        ``logprob_gap/max``.

    Raises:
        ValueError: of an unknown mode or level.
    """
    if mode not in MODES or level not in LEVELS:
        raise ValueError(f"unknown correction {mode!r} at {level!r}; modes: {MODES}, levels: {LEVELS}")
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
        "correction/factor": (weights_M * factors_M).sum(),
        "correction/square": (weights_M * factors_M.square()).sum(),
        "correction/high": (weights_M * above_M).sum(),
        "correction/low": (weights_M * below_M).sum(),
        "correction/kl": (weights_M * (torch.expm1(bounded_M) - bounded_M)).sum(),
        "correction/ratio/max": _largest(ratio_M),
        "logprob_gap/mean": (weights_M * gap_M.abs()).sum(),
        "logprob_gap/max": _largest(gap_M.abs()),
    }
    return factors_M, diagnostics


def effective_share(factor: float, square: float) -> float:
    """Kish's effective sample size as a share of the sample, from the means of the factors and of their squares.

    Both are of a whole mini-batch: the quotients of its parts do not add up to that of the whole.
    """
    return factor**2 / square if square > 0 else 0.0


def _largest(values_M: Tensor) -> Tensor:
    return values_M.max() if len(values_M) else values_M.new_zeros(())
