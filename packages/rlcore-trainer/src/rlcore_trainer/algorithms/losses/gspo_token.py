"""``gspo-token``: GSPO with per-token advantages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss
from rlcore_trainer.algorithms.losses.gspo import SequenceClipTable

if TYPE_CHECKING:
    from torch import Tensor


@loss(table=SequenceClipTable, token_wise=False, level="sequence", aggregation="seq-mean-token-mean")
def gspo_token(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4,
    clip_high: Annotated[float, Field(ge=0)] = 4e-4,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of GSPO-token: sequence ratios with per-token gradients (arXiv 2507.18071, eq. 13 and 14).

    The ratio is ``sg[s] π / sg[π]``: its value equals that of `gspo`, and the gradient of a token is scaled by its own
    advantage and weight. Advantages may therefore differ within a sequence. If advantages and weights are constant
    within each sequence, the gradient equals that of `gspo`. The metrics are those of `gspo`.

    Keys:
        clip_low: lower clip range of a trajectory's probability ratio, below 1
        clip_high: upper clip range of a trajectory's probability ratio, above 1
    """
    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics, sequence_log_ratio
    from rlcore_trainer.algorithms.losses.surrogate import clipped_surrogate

    log_ratio_M = sequence_log_ratio(logprobs_M.detach(), old_logprobs_M, sequence_M)
    # In this order, the first difference is exactly zero and the log-ratio keeps its precision.
    ratio_M = bounded_exp((logprobs_M - logprobs_M.detach()) + log_ratio_M)
    loss_M, metrics = clipped_surrogate(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    return (weights_M * loss_M).sum(), metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
