"""``kl-cov``: the policy gradient, with a KL penalty on the tokens that reduce the entropy most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss(token_wise=False, trains_zero_advantages=True)
def kl_cov(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    share: Annotated[float, Field(gt=0, le=1)] = 2e-4,
    kl_coefficient: Annotated[float, Field(ge=0)] = 1.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of KL-Cov (Cui et al. 2025, arXiv 2505.22617, §4.3).

    ``-r A``, plus ``kl_coefficient |log r|`` for the tokens with the largest covariance (`covariances`). Nothing is
    clipped.

    Keys:
        share: share of the micro-batch's tokens with the penalty; at least one token
        kl_coefficient: weight of the penalty

    Returns:
        The loss, ``ratio/max`` and ``kl/old``.
    """
    import torch

    from rlcore_trainer.algorithms.losses.covariance import covariances, selected_count
    from rlcore_trainer.algorithms.losses.ratios import LARGEST_LOG_RATIO, ratio_metrics

    log_ratio_M = (logprobs_M - old_logprobs_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    ratio_M = log_ratio_M.exp()
    chosen = covariances(logprobs_M, advantages_M).topk(selected_count(share, logprobs_M)).indices
    penalised_M = torch.zeros_like(log_ratio_M).index_fill(0, chosen, kl_coefficient)
    loss = (weights_M * (penalised_M * log_ratio_M.abs() - ratio_M * advantages_M)).sum()
    return loss, ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
