"""``gspo``: the clipped surrogate with one ratio per trajectory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rlcore.config.schema import Table

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor

WIDE = 0.05
"""A clip range that the ratio of a trajectory, a mean over its tokens, almost never leaves."""


class SequenceClipTable(Table):
    """Warns about a clip range that is usual for ratios of tokens."""

    clip_low: float
    clip_high: float

    def notes(self) -> list[str]:
        """Return notes about valid but unusual values."""
        if max(self.clip_low, self.clip_high) < WIDE:
            return []
        return [
            f"the ratio of a whole trajectory practically never leaves {self.clip_low:g} below to "
            f"{self.clip_high:g} above 1: nothing is clipped; 0.0003 is usual"
        ]


@loss(
    table=SequenceClipTable, token_wise=False, level="sequence", one_advantage=True, aggregation="seq-mean-token-mean"
)
def gspo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4,
    clip_high: Annotated[float, Field(ge=0)] = 4e-4,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of group sequence policy optimisation (Zheng et al. 2025, arXiv 2507.18071, eq. 5 to 7).

    This is the clipped surrogate with one ratio per sequence, the geometric mean of its token ratios. The gradient
    flows through that mean. With ``seq-mean-token-mean`` weights and one advantage per sequence, the loss matches the
    paper. The metrics are those of `clip`, with sequence ratios.

    Keys:
        clip_low: lower clip range of a trajectory's probability ratio, below 1
        clip_high: upper clip range of a trajectory's probability ratio, above 1
    """
    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics, sequence_log_ratio
    from rlcore_trainer.algorithms.losses.surrogate import clipped_surrogate

    ratio_M = bounded_exp(sequence_log_ratio(logprobs_M, old_logprobs_M, sequence_M))
    loss_M, metrics = clipped_surrogate(ratio_M, advantages_M, weights_M, clip_low, clip_high)
    return (weights_M * loss_M).sum(), metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
