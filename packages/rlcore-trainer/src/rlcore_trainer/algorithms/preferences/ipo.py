"""``ipo``: identity preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss(normalised=True)
def ipo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    chosen_lengths_P: Tensor,
    rejected_lengths_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Tensor:
    """Return the loss of IPO (Azar et al. 2023, arXiv 2310.12036, eq. 17).

    ``(Δ - 1 / (2 τ))²`` with τ = ``beta`` and Δ = the difference of the means over tokens of log π/π_ref. The paper
    does not state the means, which its authors use.

    Keys:
        beta: strength τ of the regularisation; the margin to which a pair is trained is 1 / (2 τ)
    """
    chosen_ratio_P = (chosen_P - reference_chosen_P) / chosen_lengths_P
    rejected_ratio_P = (rejected_P - reference_rejected_P) / rejected_lengths_P
    return (chosen_ratio_P - rejected_ratio_P - 1 / (2 * beta)) ** 2
