"""``sapo``: policy loss with a soft gate instead of clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss(aggregation="seq-mean-token-mean")
def sapo(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    positive_temperature: Annotated[float, Field(gt=0)] = 1.0,
    negative_temperature: Annotated[float, Field(gt=0)] = 1.05,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of soft adaptive policy optimisation (arXiv 2511.20347), a smooth alternative to `clip`.

    ``-(4 / τ) sigmoid(τ (r - 1)) A`` with the temperature τ ``positive_temperature`` where A > 0 and
    ``negative_temperature`` elsewhere. At r = 1, the gradient equals the policy gradient. It decays on both sides,
    faster for a higher τ.

    Keys:
        positive_temperature: steepness of the gate where the advantage is positive
        negative_temperature: steepness of the gate where the advantage is negative

    Returns:
        The loss, ``sapo/gate`` (the fraction of the importance-weighted gradient that the gate passes, 1 at r = 1),
        ``ratio/max`` and ``kl/old``.
    """
    import torch

    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics

    ratio_M = bounded_exp(logprobs_M - old_logprobs_M)
    temperature_M = torch.full_like(ratio_M, negative_temperature).masked_fill(advantages_M > 0, positive_temperature)
    gate_M = torch.sigmoid(temperature_M * (ratio_M - 1))
    loss = -(weights_M * 4 / temperature_M * gate_M * advantages_M).sum()
    with torch.no_grad():
        metrics = {"sapo/gate": (weights_M * 4 * gate_M * (1 - gate_M)).sum()}
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
