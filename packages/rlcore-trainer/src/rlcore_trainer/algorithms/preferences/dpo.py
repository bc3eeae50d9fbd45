"""``dpo``: direct preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss()
def dpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0,
) -> Tensor:
    """Return the loss of DPO (Rafailov et al. 2023, arXiv 2305.18290, eq. 7).

    ``-log σ(β Δ)`` with Δ = log π/π_ref of the chosen answer minus that of the rejected one. With
    ``label_smoothing`` ε, it is conservative DPO (Mitchell 2023): ``-(1 - ε) log σ(β Δ) - ε log σ(-β Δ)``.

    Keys:
        beta: strength of the regularisation towards the reference; a higher value keeps the policy closer to it
        label_smoothing: assumed share of pairs whose answers are swapped
    """
    from torch.nn.functional import logsigmoid

    scaled_P = beta * ((chosen_P - reference_chosen_P) - (rejected_P - reference_rejected_P))
    return -(1 - label_smoothing) * logsigmoid(scaled_P) - label_smoothing * logsigmoid(-scaled_P)
