"""``dppo-kl``: the policy gradient within a bound of the KL divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-8
"""Added to the probability of all other tokens, which rounding may reduce to 0."""


@loss()
def dppo_kl(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip_low: Annotated[float, Field(ge=0)] = 0.05,
    clip_high: Annotated[float, Field(ge=0)] = 0.05,
    largest_ratio: Annotated[float, Field(ge=1)] = 20.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of divergence PPO with binary KL (Qi et al. 2026, DPPO, arXiv 2602.04879, eq. 14).

    Like `dppo_tv`, with the divergence ``π_old log(π_old / π) + (1 - π_old) log((1 - π_old) / (1 - π))`` of the sampled
    token against all others in place of the difference of probabilities.

    Keys:
        clip_low: the largest divergence of a token whose probability has fallen, in nats
        clip_high: the largest divergence of a token whose probability has risen, in nats
        largest_ratio: the largest importance weight of a token

    Returns:
        The loss and the metrics of `clip`.
    """
    from rlcore_trainer.algorithms.losses.trust_region import trust_region_loss

    now_M, old_M = logprobs_M.detach().exp(), old_logprobs_M.exp()
    others_M = (1 - old_M) * ((1 - old_M + EPSILON) / (1 - now_M + EPSILON)).log()
    distance_M = old_M * (old_logprobs_M - logprobs_M.detach()) + others_M
    tokens = (logprobs_M, old_logprobs_M, advantages_M, weights_M, distance_M)
    return trust_region_loss(*tokens, clip_low=clip_low, clip_high=clip_high, largest_ratio=largest_ratio)
