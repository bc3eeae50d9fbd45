"""``sppo``: self-play preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss()
def sppo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Tensor:
    """Return the loss of SPPO with hard labels (Wu et al. 2024, arXiv 2405.00675, eq. 4.7).

    ``(r_chosen - 1 / (2 β))² + (r_rejected + 1 / (2 β))²`` with r = log π/π_ref.

    Keys:
        beta: inverse of twice the log ratio to which an answer is trained
    """
    target = 0.5 / beta
    return (chosen_P - reference_chosen_P - target) ** 2 + (rejected_P - reference_rejected_P + target) ** 2
