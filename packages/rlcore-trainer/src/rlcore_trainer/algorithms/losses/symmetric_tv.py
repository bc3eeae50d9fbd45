"""``symmetric-tv``: the policy gradient without tokens whose probability has moved, and a penalty on all moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import loss

if TYPE_CHECKING:
    from torch import Tensor


@loss(trains_zero_advantages=True)
def symmetric_tv(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    weights_M: Tensor,
    *,
    clip: Annotated[float, Field(ge=0, le=1)] = 0.1,
    kl_coefficient: Annotated[float, Field(ge=0)] = 1e-3,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss that prime-rl 0.8 calls ``ipo``; it is not the IPO of preferences.

    ``-r A`` for tokens with ``|π - π_old| <= clip``, whatever the sign of A, plus ``kl_coefficient (log r)²`` for all
    tokens.

    Keys:
        clip: how far the probability of a token may move
        kl_coefficient: weight of the squared log-ratio

    Returns:
        The loss; the shares of tokens whose policy gradient was removed: ``clip/high`` (the probability has risen),
        ``clip/low`` (it has fallen), ``clip/fraction`` (both); ``ratio/max``; ``kl/old``.
    """
    import torch

    from rlcore_trainer.algorithms.losses.ratios import LARGEST_LOG_RATIO, ratio_metrics
    from rlcore_trainer.algorithms.losses.surrogate import clip_shares

    log_ratio_M = (logprobs_M - old_logprobs_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    ratio_M = log_ratio_M.exp()
    with torch.no_grad():
        change_M = logprobs_M.exp() - old_logprobs_M.exp()
        kept_M = change_M.abs() <= clip
        metrics = clip_shares(change_M < -clip, change_M > clip, weights_M)
    loss = (weights_M * (kl_coefficient * log_ratio_M.square() - kept_M * ratio_M * advantages_M)).sum()
    return loss, metrics | ratio_metrics(ratio_M, logprobs_M, old_logprobs_M, weights_M)
