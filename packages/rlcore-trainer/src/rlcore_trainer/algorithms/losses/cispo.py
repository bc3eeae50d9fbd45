"""``cispo``: policy loss that clips the weight of a token instead of its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss()
def cispo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 1.0,
    clip_high: Annotated[float, Field(ge=0)] = 4.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss with clipped importance weights (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5).

    ``-sg[clip(r, 1 - clip_low, 1 + clip_high)] A log π``. Every token keeps its gradient. ``clip_low = 1`` means no
    lower bound, as in the paper.

    Keys:
        clip_low: lower clip range of a token's weight, below 1; 1 means no lower bound
        clip_high: upper clip range of a token's weight, above 1

    Returns:
        The loss, and the shares of tokens whose weight was clipped: ``clip/high``, ``clip/low``, ``clip/fraction``
        (both); ``ratio/max``; ``kl/old``.
    """
    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics
    from rlcore_trainer.algorithms.losses.surrogate import clip_shares

    ratio_M = bounded_exp(logprobs_M.detach() - old_logprobs_M)
    low, high = 1 - clip_low, 1 + clip_high
    loss = -(weights_M * ratio_M.clamp(low, high) * advantages_M * logprobs_M).sum()
    metrics = clip_shares(ratio_M < low, ratio_M > high, weights_M)
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
