"""Policy losses as pure functions on flat token tensors.

Axes: ``T`` the trained tokens of a micro-batch, of all its sequences one after another.

Every loss is ``sum(weights_T * something_T)`` where the weights already hold one over the normaliser of the whole
global batch, so that the sum over micro-batches is the mean over the global batch, however it was cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ESTIMATORS = ("k1", "abs", "mse", "k3")


def token_weights(trained_tokens_N: Sequence[int], aggregation: str) -> list[float]:
    """The weight of each trained token of N sequences; ``sum(weight * trained_tokens)`` is 1.

    ``token-mean`` gives every token the same weight; ``sequence-mean`` the same to every sequence that has tokens at
    all, shared evenly among its tokens.
    """
    if aggregation == "token-mean":
        total = sum(trained_tokens_N)
        return [1.0 / total if total else 0.0] * len(trained_tokens_N)
    sequences = sum(count > 0 for count in trained_tokens_N)
    return [1.0 / (sequences * count) if count else 0.0 for count in trained_tokens_N]


def clip(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate (Schulman et al. 2017, eq. 7) with a lower and an upper bound of their own (DAPO, eq. 10).

    Returns:
        The loss to minimise, and under ``clip/fraction`` the weighted share of tokens whose gradient the clip removed.
    """
    ratio_T = torch.exp(logprobs_T - old_logprobs_T)
    clipped_T = ratio_T.clamp(1 - clip_low, 1 + clip_high)
    free_loss_T, clipped_loss_T = -advantages_T * ratio_T, -advantages_T * clipped_T
    loss = (weights_T * torch.maximum(free_loss_T, clipped_loss_T)).sum()
    with torch.no_grad():
        fraction = (weights_T * (clipped_loss_T > free_loss_T)).sum()
    return loss, {"clip/fraction": fraction}


def kl(logprobs_T: Tensor, reference_logprobs_T: Tensor, estimator: str) -> Tensor:
    """Per-token estimate of KL(policy, reference) in nats from the sampled token alone (Schulman 2020).

    With d = log π - log π_ref: ``k1`` is d, ``abs`` is |d|, ``mse`` is d²/2 (also called k2), ``k3`` is
    exp(-d) + d - 1, clamped to [-10, 10]. As a loss only ``mse`` has the gradient of the KL in expectation;
    the gradient of ``k1`` is zero in expectation.
    """
    difference_T = logprobs_T - reference_logprobs_T
    if estimator == "k1":
        return difference_T
    if estimator == "abs":
        return difference_T.abs()
    if estimator == "mse":
        return 0.5 * difference_T.square()
    if estimator == "k3":
        # The inner clamp keeps exp finite: behind the outer clamp, infinity would become a gradient of NaN.
        log_ratio_T = (-difference_T).clamp(-20.0, 20.0)
        return (log_ratio_T.exp() - log_ratio_T - 1.0).clamp(-10.0, 10.0)
    raise ValueError(f"unknown KL estimator {estimator!r}; known: {', '.join(ESTIMATORS)}")


def entropy_bonus(entropy_T: Tensor, weights_T: Tensor) -> Tensor:
    """Minus the weighted entropy in nats: to be added to the loss, so that a positive coefficient raises entropy."""
    return -(weights_T * entropy_T).sum()
