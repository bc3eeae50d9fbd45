"""``luspo``: GSPO with the loss of each trajectory multiplied by its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss
from rlcore_trainer.algorithms.losses.gspo import SequenceClipTable, gspo

if TYPE_CHECKING:
    from torch import Tensor


@loss(table=SequenceClipTable, token_wise=False, level="sequence", one_advantage=True, aggregation="seq-mean-token-sum")
def luspo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    sequence_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4,
    clip_high: Annotated[float, Field(ge=0)] = 4e-4,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of length-unbiased sequence policy optimisation (Liu et al. 2026, LUSPO, arXiv 2602.05261).

    This is `gspo` with ``seq-mean-token-sum`` weights: the loss of a trajectory is multiplied by its number of tokens,
    so the gradient of a token does not depend on the length of its trajectory.

    Keys:
        clip_low: lower clip range of a trajectory's probability ratio, below 1
        clip_high: upper clip range of a trajectory's probability ratio, above 1
    """
    tokens = (logprobs_M, old_logprobs_M, advantages_M, weights_M, sequence_M)
    return gspo(*tokens, clip_low=clip_low, clip_high=clip_high)
