"""``robust-dpo``: DPO with swapped labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss()
def robust_dpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.1,
) -> Tensor:
    """Return the unbiased loss of DPO for swapped labels (Chowdhury et al. 2024, arXiv 2403.00409, eq. 12).

    ``(-(1 - ε) log σ(β Δ) + ε log σ(-β Δ)) / (1 - 2 ε)``: if a share ε of the labels is swapped, its expectation is
    the loss of DPO with the right labels.

    Keys:
        beta: strength of the regularisation towards the reference; a higher value keeps the policy closer to it
        label_smoothing: share ε of pairs whose answers are swapped
    """
    from torch.nn.functional import logsigmoid

    scaled_P = beta * ((chosen_P - reference_chosen_P) - (rejected_P - reference_rejected_P))
    kept_P, swapped_P = -(1 - label_smoothing) * logsigmoid(scaled_P), label_smoothing * logsigmoid(-scaled_P)
    return (kept_P + swapped_P) / (1 - 2 * label_smoothing)
