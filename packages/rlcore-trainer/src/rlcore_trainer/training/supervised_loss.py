"""The supervised loss: the mean negative log-likelihood of the trained tokens, over packed micro-batches.

Axes: ``M`` the trained tokens of a micro-batch, ``C`` a chunk of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence, pack
from rlcore_trainer.distributed.strategy import Strategy
from rlcore_trainer.policy.policy import Policy


def supervised_gradient(
    policy: Policy,
    strategy: Strategy,
    sequences: Sequence[TrainingSequence],
    max_tokens: int,
    *,
    advance: Callable[[int], None] = lambda tokens: None,
) -> float:
    """Add the gradient of the mean over all trained tokens of ``-log p``, and return that mean in nats.

    The mean is over the whole batch: each token has the weight 1 / (trained tokens of all ``sequences``), so it does
    not depend on the number or composition of the micro-batches. ``advance`` is called with the trained tokens of each.

    Raises:
        ValueError: there are no trained tokens.
    """
    trained = sum(sequence.trained for sequence in sequences)
    if not trained:
        raise ValueError("a batch without a trained token has no loss")
    weighted = [replace(sequence, weight=1.0 / trained) for sequence in sequences]
    total = torch.zeros((), dtype=torch.float64, device=policy.device)
    with policy.computing():
        for batch in pack(weighted, max_tokens, policy.device, strategy.rank):
            loss = _loss(policy, batch)
            strategy.backward(loss)
            total += loss.detach()
            advance(len(batch.targets_M))
    return strategy.sum({"loss": float(total)})["loss"]


@torch.no_grad()
def total_loss(
    policy: Policy,
    strategy: Strategy,
    sequences: Sequence[TrainingSequence],
    max_tokens: int,
    *,
    advance: Callable[[int], None] = lambda tokens: None,
) -> tuple[float, int]:
    """Return the sum of ``-log p`` over all trained tokens in nats, and the number of trained tokens.

    ``advance`` is called with the tokens of each micro-batch.
    """
    total = torch.zeros((), dtype=torch.float64, device=policy.device)
    with policy.computing():
        weighted = [replace(sequence, weight=1.0) for sequence in sequences]
        for batch in pack(weighted, max_tokens, policy.device, strategy.rank):
            total += _loss(policy, batch)
            advance(len(batch.targets_M))
    return strategy.sum({"loss": float(total)})["loss"], sum(sequence.trained for sequence in sequences)


def _loss(policy: Policy, batch: MicroBatch) -> Tensor:
    """Return the weighted sum of ``-log p`` of a micro-batch."""

    def of_chunk(chunk: slice, logprobs_C: Tensor, _: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        return -(batch.weights_M[chunk].to(logprobs_C) * logprobs_C).sum(), {}

    return policy.loss(batch, of_chunk, entropy=False).loss
