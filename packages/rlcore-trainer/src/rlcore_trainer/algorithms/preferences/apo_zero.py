"""``apo-zero``: anchored preference optimisation for answers that are better than those of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss()
def apo_zero(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Tensor:
    """Return the loss of APO-zero (D'Oosterlinck et al. 2024, arXiv 2408.06266, eq. 7).

    ``1 - σ(β r_chosen) + σ(β r_rejected)`` with r = log π/π_ref: the chosen answer becomes more likely than under the
    reference, and the rejected one less likely.

    Keys:
        beta: strength of the regularisation towards the reference; a higher value keeps the policy closer to it
    """
    return (
        1 - (beta * (chosen_P - reference_chosen_P)).sigmoid() + (beta * (rejected_P - reference_rejected_P)).sigmoid()
    )
