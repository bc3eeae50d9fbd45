"""``dpo-norm``: DPO with means over tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss(normalised=True)
def dpo_norm(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    chosen_lengths_P: Tensor,
    rejected_lengths_P: Tensor,
    *,
    beta: Annotated[float, Field(gt=0)] = 5.0,
) -> Tensor:
    """Return the length-normalised loss of DPO (Lambert et al. 2024, arXiv 2411.15124, eq. 6).

    ``-log σ(β Δ)`` with Δ = the difference of the means over tokens of log π/π_ref. As means are smaller than sums, β
    is larger than that of ``dpo``.

    Keys:
        beta: strength of the regularisation towards the reference
    """
    from torch.nn.functional import logsigmoid

    chosen_ratio_P = (chosen_P - reference_chosen_P) / chosen_lengths_P
    rejected_ratio_P = (rejected_P - reference_rejected_P) / rejected_lengths_P
    return -logsigmoid(beta * (chosen_ratio_P - rejected_ratio_P))
