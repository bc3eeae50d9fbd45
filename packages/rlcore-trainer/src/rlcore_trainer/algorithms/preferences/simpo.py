"""``simpo``: simple preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss(needs_reference=False, normalised=True)
def simpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    chosen_lengths_P: Tensor,
    rejected_lengths_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 2.0,
    margin: Annotated[float, Field(ge=0)] = 1.0,
) -> Tensor:
    """Return the loss of SimPO (Meng et al. 2024, arXiv 2405.14734, eq. 6), which needs no reference.

    ``-log σ(β (mean log π(chosen) - mean log π(rejected)) - γ)`` with means over tokens and γ = ``margin``.

    Keys:
        beta: scale β of the difference
        margin: margin γ that the scaled difference should exceed
    """
    from torch.nn.functional import logsigmoid

    return -logsigmoid(beta * (chosen_P / chosen_lengths_P - rejected_P / rejected_lengths_P) - margin)
