"""Log-probabilities and entropies of given tokens, without storing ``[tokens, vocabulary]`` for all tokens at once.

Axes: ``M`` the trained tokens, ``D`` the width of the model, ``V`` the vocabulary, ``C`` a chunk of the M rows, ``B`` a
tile of the V columns.

`fused_loss` computes the logits of a chunk of rows once and the gradient in the same pass (three matrix products).
`logprobs_and_entropy` supports every loss. It recomputes the logits in the backward pass (four matrix products) and
stores at most one tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlcore_trainer.policy.logits import HeadGradient, Normaliser, Slope, Statistics, Tiles, slices

CPU_ELEMENTS, GPU_ELEMENTS = 1 << 24, 1 << 27
"""Number of logits stored at a time: 64 MiB and 512 MiB in float32."""
TILED_ROWS = 1 << 13
"""Rows of a chunk on a CPU if only a tile of the logits is stored: many, to read the output layer only once."""

LossOfOutput = Callable[["Output"], tuple[Tensor, dict[str, Tensor]]]
"""A term of the loss that needs the logits of all tokens, with its metrics."""
LossOfChunk = Callable[[slice, Tensor, Tensor | None], tuple[Tensor, dict[str, Tensor]]]


class Output(NamedTuple):
    """What a model computes logits from."""

    hidden_MD: Tensor
    """The hidden states that predict the trained tokens."""
    head_VD: Tensor
    """The weights of the output layer."""


class FusedLoss(NamedTuple):
    """The result of one pass over the logits."""

    loss: Tensor
    """The sum over the chunks, 0-d, with its gradient already computed."""
    logprobs_M: Tensor
    """Log-probabilities in nats, detached."""
    entropy_M: Tensor | None
    """Entropies in nats, detached; None if not requested."""
    metrics: list[dict[str, Tensor]]
    """Metrics of each chunk, detached."""


def logprobs_and_entropy(
    hidden_MD: Tensor,
    head_VD: Tensor,
    targets_M: Tensor,
    *,
    temperature: float = 1.0,
    chunk_rows: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return ``log softmax(hidden @ head.T / temperature)`` at the targets, and the entropy of each row, in nats.

    Computed in float32 (float64 for float64 input), at most ``chunk_rows`` rows at a time. The backward pass recomputes
    the logits instead of storing them. Gradients flow to ``hidden_MD`` and ``head_VD``.

    Returns:
        ``logprobs_M`` and ``entropy_M``.
    """
    apply: Any = _Logprobs.apply
    result: tuple[Tensor, Tensor] = apply(hidden_MD, head_VD, targets_M, temperature, chunk_rows)
    return result


def fused_loss(
    hidden_MD: Tensor,
    head_VD: Tensor,
    targets_M: Tensor,
    loss_of_chunk: LossOfChunk,
    *,
    temperature: float = 1.0,
    entropy: bool = True,
    chunk_rows: int | None = None,
) -> FusedLoss:
    """Compute a token-wise loss and its gradient in a single pass over the logits.

    Args:
        hidden_MD: hidden states of the trained tokens; receives gradients
        head_VD: weights of the output layer; receives gradients
        targets_M: the tokens
        loss_of_chunk: called as ``(rows, logprobs_C, entropy_C)`` for each slice of the M rows, returns the part of the
            loss and the metrics of those rows. The loss must be the sum of its parts: a loss of whole sequences needs
            `logprobs_and_entropy`
        temperature: divisor of the logits
        entropy: whether ``loss_of_chunk`` receives the entropy; otherwise it receives None
        chunk_rows: number of rows whose logits are stored at once; None selects it automatically

    The backward pass can run only once, because the gradient is not copied.
    """
    grad_mode = torch.is_grad_enabled()
    with torch.no_grad():
        rows = min(chunk_rows or rows_held(head_VD), max(1, len(hidden_MD)))
        tiles = Tiles(hidden_MD, head_VD, rows)
        gradient = HeadGradient(
            hidden_MD,
            head_VD,
            wants_hidden=grad_mode and hidden_MD.requires_grad,
            wants_head=grad_mode and head_VD.requires_grad,
        )
        held = tiles.memory(rows * len(head_VD))
        logprobs_M, entropy_M = tiles.memory(len(hidden_MD)), tiles.memory(len(hidden_MD)) if entropy else None
        total, metrics = torch.zeros_like(logprobs_M[:0].sum()), []
        for chunk in slices(len(hidden_MD), rows):
            hidden_CD, targets_C = tiles.inputs(hidden_MD[chunk]), targets_M[chunk]
            statistics = Statistics(targets_C, tiles.dtype, with_entropy=entropy)
            weights = []
            for tile in tiles.columns:
                memory = held[len(hidden_CD) * tile.start :]
                logits_CB = tiles.logits(hidden_CD, tile, temperature, memory)
                shift_C = statistics.add(tile.start, logits_CB, tiles.beside(logits_CB))
                weights.append((logits_CB, shift_C))
            logprobs_C, entropy_C = statistics.logprobs_and_entropy()
            logprobs_M[chunk] = logprobs_C
            if entropy_M is not None and entropy_C is not None:
                entropy_M[chunk] = entropy_C
            loss, numbers, slopes = _loss_and_slopes(loss_of_chunk, chunk, logprobs_C, entropy_C)
            total += loss
            metrics.append(numbers)
            if slopes is None or not gradient.wanted:
                continue
            slope = Slope(targets_C, statistics.normaliser, entropy_C, *slopes, temperature)
            for tile, (weights_CB, shift_C) in zip(tiles.columns, weights, strict=True):
                memory_CB = tiles.beside(weights_CB)
                gradient.add(chunk, tile, slope.of_weights(tile.start, weights_CB, shift_C, memory_CB))
    return FusedLoss(with_gradient(total, hidden_MD, head_VD, gradient), logprobs_M, entropy_M, metrics)


def with_gradient(loss: Tensor, hidden_MD: Tensor, head_VD: Tensor, gradient: HeadGradient) -> Tensor:
    """Return a loss whose backward pass, which can run only once, gives a gradient that is already known."""
    apply: Any = _KnownGradient.apply
    found: Tensor = apply(loss, hidden_MD, head_VD, gradient)
    return found


def rows_held(head_VD: Tensor) -> int:
    """Return the number of rows whose logits are stored at a time."""
    return max(1, (CPU_ELEMENTS if head_VD.device.type == "cpu" else GPU_ELEMENTS) // len(head_VD))


def _loss_and_slopes(
    loss_of_chunk: LossOfChunk, chunk: slice, logprobs_C: Tensor, entropy_C: Tensor | None
) -> tuple[Tensor, dict[str, Tensor], tuple[Tensor | None, Tensor | None] | None]:
    """Return the loss and metrics of a chunk, detached, and the derivatives by log-probabilities and entropies."""
    logprobs_C = logprobs_C.clone().requires_grad_()
    entropy_C = None if entropy_C is None else entropy_C.clone().requires_grad_()
    with torch.enable_grad():
        loss, metrics = loss_of_chunk(chunk, logprobs_C, entropy_C)
    numbers = {name: value.detach() for name, value in metrics.items()}
    if not loss.requires_grad:
        return loss, numbers, None
    leaves = [logprobs_C] if entropy_C is None else [logprobs_C, entropy_C]
    grad_logprobs_C, *others = torch.autograd.grad(loss, leaves, allow_unused=True)
    return loss.detach(), numbers, (grad_logprobs_C, others[0] if others else None)


class _KnownGradient(torch.autograd.Function):
    """A loss whose gradient was computed together with it."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, hidden_MD: Tensor, head_VD: Tensor, gradient: HeadGradient) -> Tensor:
        ctx.gradients = gradient.result()
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the backward pass of fused_loss can run only once")
        gradients, ctx.gradients = ctx.gradients, None
        if float(grad_loss) != 1.0:
            gradients = [None if gradient is None else gradient.mul_(grad_loss) for gradient in gradients]
        return None, *gradients, None


class _Logprobs(torch.autograd.Function):
    """The tiled loops as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any, hidden_MD: Tensor, head_VD: Tensor, targets_M: Tensor, temperature: float, chunk_rows: int | None
    ) -> tuple[Tensor, Tensor]:
        rows = chunk_rows or (TILED_ROWS if head_VD.device.type == "cpu" else rows_held(head_VD))
        rows = min(rows, max(1, len(hidden_MD)))
        tiles = Tiles(hidden_MD, head_VD, rows)
        logprobs_M, entropy_M, largest_M, log_sum_M = (tiles.memory(len(hidden_MD)) for _ in range(4))
        for chunk in slices(len(hidden_MD), rows):
            hidden_CD = tiles.inputs(hidden_MD[chunk])
            statistics = Statistics(targets_M[chunk], tiles.dtype, with_entropy=True)
            for tile in tiles.columns:
                logits_CB = tiles.logits(hidden_CD, tile, temperature)
                statistics.add(tile.start, logits_CB, tiles.beside(logits_CB))
            logprobs_M[chunk], entropy_C = statistics.logprobs_and_entropy()
            assert entropy_C is not None
            entropy_M[chunk] = entropy_C
            largest_M[chunk], log_sum_M[chunk] = statistics.normaliser
        ctx.save_for_backward(hidden_MD, head_VD, targets_M, largest_M, log_sum_M, entropy_M)
        ctx.set_materialize_grads(False)
        ctx.temperature, ctx.rows = temperature, rows
        return logprobs_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden_MD, head_VD, targets_M, largest_M, log_sum_M, entropy_M = ctx.saved_tensors
        wants_hidden, wants_head = ctx.needs_input_grad[:2]
        gradient = HeadGradient(hidden_MD, head_VD, wants_hidden=wants_hidden, wants_head=wants_head)
        tiles = Tiles(hidden_MD, head_VD, ctx.rows)
        for chunk in slices(len(hidden_MD), ctx.rows):
            by_logprobs_C, by_entropy_C = (None if slope_M is None else slope_M[chunk] for slope_M in slopes)
            normaliser = Normaliser(largest_M[chunk], log_sum_M[chunk])
            slope = Slope(targets_M[chunk], normaliser, entropy_M[chunk], by_logprobs_C, by_entropy_C, ctx.temperature)
            hidden_CD = tiles.inputs(hidden_MD[chunk])
            for tile in tiles.columns:
                logits_CB = tiles.logits(hidden_CD, tile, ctx.temperature)
                gradient.add(chunk, tile, slope.of_logits(tile.start, logits_CB, tiles.beside(logits_CB)))
        return *gradient.result(), None, None, None
