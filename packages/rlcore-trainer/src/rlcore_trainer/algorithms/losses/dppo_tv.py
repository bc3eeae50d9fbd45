"""``dppo-tv``: the policy gradient within a bound of the total variation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss()
def dppo_tv(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.15,
    clip_high: Annotated[float, Field(ge=0, le=1)] = 0.15,
    largest_ratio: Annotated[float, Field(ge=1)] = 20.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of divergence PPO with binary total variation (Qi et al. 2026, DPPO, arXiv 2602.04879, eq. 13).

    ``-sg[min(r, largest_ratio)] A log π``, except for tokens with A > 0 and ``π - π_old > clip_high``, or A < 0 and
    ``π_old - π > clip_low``. The bounds are differences of probabilities, so a rare token may double, and a frequent
    token may not move by much.

    Keys:
        clip_low: how far the probability of a token may fall
        clip_high: how far the probability of a token may rise
        largest_ratio: the largest importance weight of a token

    Returns:
        The loss and the metrics of `clip`.
    """
    from rlcore_trainer.algorithms.losses.trust_region import trust_region_loss

    distance_M = (logprobs_M.detach().exp() - old_logprobs_M.exp()).abs()
    tokens = (logprobs_M, old_logprobs_M, advantages_M, weights_M, distance_M)
    return trust_region_loss(*tokens, clip_low=clip_low, clip_high=clip_high, largest_ratio=largest_ratio)
