"""``clip``: the clipped surrogate of PPO, with one ratio per token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss()
def clip(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2,
    clip_high: Annotated[float, Field(ge=0)] = 0.2,
    dual_clip: Annotated[float, Field(gt=1)] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the clipped surrogate (PPO, arXiv 1707.06347, eq. 7) with separate bounds (DAPO, 2503.14476, eq. 10).

    ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)`` with r = π / π_old. With ``dual_clip``, the loss of a token
    with a negative advantage is at most ``-dual_clip A`` (Ye et al. 2020, arXiv 1912.09729, eq. 5). Without it, the
    loss of a token with a negative advantage and a ratio above e^20 is ``-e^20 A``, without gradient.

    Keys:
        clip_low: lower clip range of the probability ratio, below 1
        clip_high: upper clip range of the probability ratio, above 1
        dual_clip: maximum ratio used if the advantage is negative (dual clip); None means no limit

    Returns:
        The loss, and the shares of tokens whose gradient was removed: ``clip/high`` (positive advantage, ratio above
        the upper bound), ``clip/low`` (negative advantage, ratio below the lower bound), ``clip/fraction`` (both),
        ``clip/dual``; ``ratio/max``; ``kl/old``.
    """
    import torch

    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics
    from rlcore_trainer.algorithms.losses.surrogate import clipped_surrogate

    ratio_M = bounded_exp(logprobs_M - old_logprobs_M)
    loss_M, metrics = clipped_surrogate(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    if dual_clip is not None:
        ceiling_M = -dual_clip * advantages_M
        reached_M = (advantages_M < 0) & (loss_M > ceiling_M)
        loss_M = torch.where(reached_M, ceiling_M, loss_M)
        metrics["clip/dual"] = (weights_M * reached_M).sum()
    return (weights_M * loss_M).sum(), metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
