"""``clip-cov``: the clipped surrogate without some of the tokens that reduce the entropy most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss(token_wise=False, trains_zero_advantages=True)
def clip_cov(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2,
    clip_high: Annotated[float, Field(ge=0)] = 0.2,
    share: Annotated[float, Field(gt=0, le=1)] = 2e-4,
    covariance_low: float = 1.0,
    covariance_high: float = 5.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of Clip-Cov (Cui et al. 2025, arXiv 2505.22617, §4.2).

    This is `clip` without a random selection of tokens whose covariance (`covariances`) is between the two bounds.
    Tokens that are clipped are not selected.

    Keys:
        clip_low: lower clip range of the probability ratio, below 1
        clip_high: upper clip range of the probability ratio, above 1
        share: share of the micro-batch's tokens that is removed; at least one token, if any is within the bounds
        covariance_low: covariance above which a token may be removed
        covariance_high: covariance below which a token may be removed

    Returns:
        The loss, the metrics of `clip`, and ``clip/covariance``, the share of tokens removed by their covariance.
    """
    import torch

    from rlcore_trainer.algorithms.losses.covariance import covariances, selected_count
    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics
    from rlcore_trainer.algorithms.losses.surrogate import clipped_surrogate

    ratio_M = bounded_exp(logprobs_M - old_logprobs_M)
    loss_M, metrics = clipped_surrogate(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    with torch.no_grad():
        covariance_M = covariances(logprobs_M, advantages_M)
        clipped_M = -advantages_M * ratio_M < loss_M
        within_M = (covariance_M > covariance_low) & (covariance_M < covariance_high) & ~clipped_M
        candidates = within_M.nonzero()[:, 0]
        chosen = torch.randperm(len(candidates))[: selected_count(share, logprobs_M)].to(candidates.device)
        removed_M = torch.zeros_like(within_M).index_fill(0, candidates[chosen], True)
        metrics["clip/covariance"] = (weights_M * removed_M).sum()
    loss = (weights_M * loss_M.masked_fill(removed_M, 0.0)).sum()
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
