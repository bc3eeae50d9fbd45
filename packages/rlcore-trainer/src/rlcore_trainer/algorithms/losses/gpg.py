"""``gpg``: the policy gradient itself, without probability ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss()
def gpg(
    logprobs_M: Tensor, old_logprobs_M: Tensor, advantages_M: Tensor, weights_M: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of group policy gradient (Chu et al. 2025, GPG, arXiv 2504.02546): ``-A log π``.

    Nothing corrects for updates after the first one on a rollout: they use the same gradient weights off policy.

    Returns:
        The loss, ``ratio/max`` and ``kl/old``.
    """
    from rlcore_trainer.algorithms.losses.ratios import bounded_exp, ratio_metrics

    ratio_M = bounded_exp(logprobs_M.detach() - old_logprobs_M)
    loss = -(weights_M * advantages_M * logprobs_M).sum()
    return loss, ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
