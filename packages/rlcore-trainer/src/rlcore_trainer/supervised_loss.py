"""The supervised loss: the mean negative log-likelihood of the trained tokens, over packed micro-batches.

Axes: ``M`` the trained tokens of a micro-batch, ``C`` a chunk of them.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.attention import packed_attention_of
from rlcore_trainer.model import batch_loss
from rlcore_trainer.packing import MicroBatch, Sequence, pack
from rlcore_trainer.strategies.single import SingleProcess


def supervised_gradient(
    model: PreTrainedModel, strategy: SingleProcess, sequences: SequenceOf[Sequence], max_tokens: int
) -> float:
    """Add the gradient of the mean over all trained tokens of ``-log p``, and return that mean in nats.

    The mean is that of the whole batch: each token has the weight 1 / (trained tokens of all ``sequences``), so
    neither the number of micro-batches nor which sequences share one changes it.

    Raises:
        ValueError: no token is trained.
    """
    trained = sum(sequence.trained for sequence in sequences)
    if not trained:
        raise ValueError("a batch without a trained token has no loss")
    weighted = [replace(sequence, weight=1.0 / trained) for sequence in sequences]
    total = torch.zeros((), dtype=torch.float64, device=model.device)
    with packed_attention_of(model):
        for batch in pack(weighted, max_tokens, model.device, strategy.place):
            loss = _loss(model, batch)
            strategy.backward(loss)
            total += loss.detach()
    return strategy.sum({"loss": float(total)})["loss"]


@torch.no_grad()
def total_loss(
    model: PreTrainedModel, strategy: SingleProcess, sequences: SequenceOf[Sequence], max_tokens: int
) -> tuple[float, int]:
    """The sum of ``-log p`` over all trained tokens in nats, and how many these are."""
    total = torch.zeros((), dtype=torch.float64, device=model.device)
    with packed_attention_of(model):
        weighted = [replace(sequence, weight=1.0) for sequence in sequences]
        for batch in pack(weighted, max_tokens, model.device, strategy.place):
            total += _loss(model, batch)
    return strategy.sum({"loss": float(total)})["loss"], sum(sequence.trained for sequence in sequences)


def _loss(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """The weighted sum of ``-log p`` of a micro-batch."""

    def of_chunk(chunk: slice, logprobs_C: Tensor, _: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        return -(batch.weights_M[chunk].to(logprobs_C) * logprobs_C).sum(), {}

    return batch_loss(model, batch, of_chunk, entropy=False).loss
