"""``orpo``: odds ratio preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss(needs_reference=False, normalised=True, sft=1.0)
def orpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    chosen_lengths_P: Tensor,
    rejected_lengths_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Tensor:
    """Return the odds ratio term of ORPO (Hong et al. 2024, arXiv 2403.07691, eq. 6 and 7), which needs no reference.

    ``-λ log σ(log odds(chosen) - log odds(rejected))`` with λ = ``beta``, odds = p / (1 - p), and p the geometric mean
    of the probabilities of an answer's tokens. The paper adds the negative log-likelihood of the chosen answers, so
    ``preference.sft`` is 1 unless it is set.

    Keys:
        beta: weight λ of the term
    """
    import torch
    from torch.nn.functional import logsigmoid

    # A probability that is rounded to 1 has infinite odds, whose gradient is not a number.
    chosen_mean_P = (chosen_P / chosen_lengths_P).clamp(max=-1e-9)
    rejected_mean_P = (rejected_P / rejected_lengths_P).clamp(max=-1e-9)
    log_rests_P = torch.log(-torch.expm1(chosen_mean_P)) - torch.log(-torch.expm1(rejected_mean_P))
    return -beta * logsigmoid(chosen_mean_P - rejected_mean_P - log_rests_P)
