"""``geo-mean``: the geometric mean of a trajectory's clipped token ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss(token_wise=False, level="sequence", one_advantage=True, aggregation="seq-mean-token-mean")
def geo_mean(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0)] = 0.4,
    clip_high: Annotated[float, Field(ge=0)] = 0.4,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of geometric-mean policy optimisation (Zhao et al. 2025, GMPO, arXiv 2507.20673).

    ``-A exp(mean over the sequence of d)``, where d is the log-ratio of a token. A positive advantage bounds d above by
    ``clip_high``, a negative one bounds it below by ``-clip_low``. Unlike in `gspo`, tokens are clipped one by one, and
    the rest of the sequence keeps its gradient. With ``seq-mean-token-mean`` weights and one advantage per sequence,
    the loss matches the paper.

    Keys:
        clip_low: how far below 0 the log-ratio of a token may push, in nats
        clip_high: how far above 0 the log-ratio of a token may push, in nats

    Returns:
        The loss, and the shares of tokens whose gradient was removed: ``clip/high``, ``clip/low``, ``clip/fraction``
        (both); ``ratio/max`` of tokens; ``kl/old``.
    """
    import torch

    from rlcore_trainer.algorithms.losses.ratios import LARGEST_LOG_RATIO, ratio_metrics, sequence_sums
    from rlcore_trainer.algorithms.losses.surrogate import clip_shares

    log_ratio_M = (logprobs_M - old_logprobs_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    sign_M = advantages_M.sign()
    clipped_M = log_ratio_M.clamp(-clip_low, clip_high)
    bounded_M = sign_M * torch.minimum(sign_M * log_ratio_M, sign_M * clipped_M)
    sums_M, counts_M = sequence_sums(bounded_M, sequence_M)
    loss = -(weights_M * advantages_M * (sums_M / counts_M).exp()).sum()
    with torch.no_grad():
        metrics = clip_shares(
            (advantages_M < 0) & (log_ratio_M < -clip_low), (advantages_M > 0) & (log_ratio_M > clip_high), weights_M
        )
        ratio_M = log_ratio_M.exp()
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
