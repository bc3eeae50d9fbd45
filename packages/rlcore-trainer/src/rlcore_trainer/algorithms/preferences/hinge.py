"""``hinge``: the hinge loss of SLiC and RSO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss()
def hinge(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Tensor:
    """Return the hinge loss on normalised likelihoods (Liu et al. 2023, arXiv 2309.06657, eq. 10).

    ``max(0, 1 - β Δ)`` with Δ = log π/π_ref of the chosen answer minus that of the rejected one. A pair whose margin is
    reached has no gradient.

    Keys:
        beta: inverse of the margin to which a pair is trained
    """
    return (1 - beta * ((chosen_P - reference_chosen_P) - (rejected_P - reference_rejected_P))).relu()
