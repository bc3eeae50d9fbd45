"""``apo-down``: anchored preference optimisation for answers that are worse than those of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss()
def apo_down(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Tensor:
    """Return the loss of APO-down (D'Oosterlinck et al. 2024, arXiv 2408.06266, eq. 8).

    ``σ(β r_chosen) + 1 - σ(β (r_chosen - r_rejected))`` with r = log π/π_ref: both answers become less likely than
    under the reference, the rejected one more so.

    Keys:
        beta: strength of the regularisation towards the reference; a higher value keeps the policy closer to it
    """
    chosen_ratio_P, rejected_ratio_P = chosen_P - reference_chosen_P, rejected_P - reference_rejected_P
    return (beta * chosen_ratio_P).sigmoid() + 1 - (beta * (chosen_ratio_P - rejected_ratio_P)).sigmoid()
