"""``cpo``: contrastive preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.preferences.interface import preference_loss

if TYPE_CHECKING:
    from torch import Tensor


@preference_loss(needs_reference=False, sft=1.0)
def cpo(chosen_P: Tensor, rejected_P: Tensor, *, beta: Annotated[float, Field(gt=0)] = 0.1) -> Tensor:
    """Return the contrastive term of CPO (Xu et al. 2024, arXiv 2401.08417, eq. 3), which needs no reference.

    ``-log σ(β (log π(chosen) - log π(rejected)))``. The paper adds the negative log-likelihood of the chosen answers
    (eq. 4), so ``preference.sft`` is 1 unless it is set.

    Keys:
        beta: scale β of the difference
    """
    from torch.nn.functional import logsigmoid

    return -logsigmoid(beta * (chosen_P - rejected_P))
