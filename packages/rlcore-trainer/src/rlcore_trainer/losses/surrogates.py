"""Policy losses.

Axes: ``M`` the trained tokens of a micro-batch, sequence after sequence.

Every loss is ``sum(weights_M * something_M)`` where the weights already hold one over the normaliser of the whole
global batch, so that the sum over micro-batches is the mean over the global batch, however it was cut. A loss without
``sequence_M`` is token-wise: what it adds for a token depends on that token's arguments alone. Log-probabilities are in
nats, metrics are weighted means without gradient but for those that end in ``/max``. Log-ratios are cut to ±20.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.losses.ratios import bounded_exp, ratio_metrics, sequence_log_ratio

Loss = tuple[Tensor, dict[str, Tensor]]


def clip(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Loss:
    """The clipped surrogate (PPO, arXiv 1707.06347, eq. 7), each side with its own bound (DAPO, 2503.14476, eq. 10).

    ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)`` with r = π / π_old. With ``dual_clip`` a token of negative
    advantage costs at most ``-dual_clip A`` (Ye et al. 2020, arXiv 1912.09729, eq. 5); without, a token of ratio above
    e^20 costs e^20 times its advantage and has no gradient.

    Returns:
        The loss, and the shares of tokens whose gradient was removed: ``clip/high`` (good, and risen past the upper
        bound), ``clip/low`` (bad, and fallen past the lower), ``clip/fraction`` (both), ``clip/dual``; ``ratio/max``;
        ``kl/old``.
    """
    ratio_M = bounded_exp(logprobs_M - old_logprobs_M)
    loss_M, metrics = _clipped(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    if dual_clip is not None:
        ceiling_M = -dual_clip * advantages_M
        reached_M = (advantages_M < 0) & (loss_M > ceiling_M)
        loss_M = torch.where(reached_M, ceiling_M, loss_M)
        metrics["clip/dual"] = (weights_M * reached_M).sum()
    return (weights_M * loss_M).sum(), metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)


def gspo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Loss:
    """Group sequence policy optimisation (Zheng et al. 2025, arXiv 2507.18071, eq. 5 to 7).

    The clipped surrogate with one ratio for a whole sequence, the geometric mean of its tokens' ratios. The gradient
    goes through that mean. With ``seq-mean-token-mean`` weights and one advantage a sequence it is the paper's.
    Metrics are those of `clip`, with the ratio of the sequence.
    """
    ratio_M = bounded_exp(sequence_log_ratio(logprobs_M, old_logprobs_M, sequence_M))
    loss_M, metrics = _clipped(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    return (weights_M * loss_M).sum(), metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)


def gspo_token(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Loss:
    """GSPO-token (arXiv 2507.18071, eq. 13 and 14): the sequence's ratio, but each token's own gradient.

    The ratio is ``sg[s] π / sg[π]``: the value is that of `gspo`, and the gradient of a token is scaled by its own
    advantage and weight, so that advantages may differ within a sequence. Where they do not, and weights do not
    either, the gradient is that of `gspo`. Metrics are those of `gspo`.
    """
    log_ratio_M = sequence_log_ratio(logprobs_M.detach(), old_logprobs_M, sequence_M)
    # In this order the first difference is exactly zero and takes no digits off the log-ratio.
    ratio_M = bounded_exp((logprobs_M - logprobs_M.detach()) + log_ratio_M)
    loss_M, metrics = _clipped(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    return (weights_M * loss_M).sum(), metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)


def cispo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
) -> Loss:
    """Clipped importance weights (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5): no token ever loses its gradient.

    ``-sg[clip(r, 1 - clip_low, 1 + clip_high)] A log π``. With ``clip_low`` 1 there is no lower bound, as in the paper.

    Returns:
        The loss, and the shares of tokens whose weight was cut: ``clip/high``, ``clip/low``, ``clip/fraction`` (both);
        ``ratio/max``; ``kl/old``.
    """
    ratio_M = bounded_exp(logprobs_M.detach() - old_logprobs_M)
    low, high = 1 - clip_low, 1 + clip_high
    loss = -(weights_M * ratio_M.clamp(low, high) * advantages_M * logprobs_M).sum()
    metrics = _shares(ratio_M < low, ratio_M > high, weights_M)
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)


def sapo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    sapo_positive: float = 1.0,
    sapo_negative: float = 1.05,
) -> Loss:
    """Soft adaptive policy optimisation (arXiv 2511.20347): a smooth gate where `clip` has an edge.

    ``-(4 / τ) sigmoid(τ (r - 1)) A`` with the steepness τ ``sapo_positive`` where A > 0 and ``sapo_negative``
    elsewhere. At r = 1 the gradient is that of the policy gradient; away from it, it fades on both sides.

    Returns:
        The loss, ``sapo/gate`` (how much of the importance-weighted gradient the gate lets through, 1 at r = 1),
        ``ratio/max`` and ``kl/old``.
    """
    ratio_M = bounded_exp(logprobs_M - old_logprobs_M)
    steepness_M = torch.full_like(ratio_M, sapo_negative).masked_fill(advantages_M > 0, sapo_positive)
    gate_M = torch.sigmoid(steepness_M * (ratio_M - 1))
    loss = -(weights_M * 4 / steepness_M * gate_M * advantages_M).sum()
    with torch.no_grad():
        metrics = {"sapo/gate": (weights_M * 4 * gate_M * (1 - gate_M)).sum()}
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)


def entropy_bonus(entropy_M: Tensor, weights_M: Tensor) -> Tensor:
    """Minus the weighted entropy in nats: to be added to the loss, so that a positive coefficient raises entropy."""
    return -(weights_M * entropy_M).sum()


def _clipped(ratio_M: Tensor, advantages_M: Tensor, weights_M: Tensor, clip_low: float, clip_high: float) -> Loss:
    """The pessimistic one of the free and the clipped surrogate, for each token."""
    free_M = -advantages_M * ratio_M
    clipped_M = -advantages_M * ratio_M.clamp(1 - clip_low, 1 + clip_high)
    with torch.no_grad():
        removed_M = clipped_M > free_M
        metrics = _shares(removed_M & (advantages_M < 0), removed_M & (advantages_M > 0), weights_M)
    return torch.maximum(free_M, clipped_M), metrics


def _shares(low_M: Tensor, high_M: Tensor, weights_M: Tensor) -> dict[str, Tensor]:
    low, high = (weights_M * low_M).sum(), (weights_M * high_M).sum()
    return {"clip/fraction": low + high, "clip/low": low, "clip/high": high}
