"""Compute logits in tiles, with the statistics of their rows and the derivative of a loss with respect to them.

Axes: ``C`` the rows of a chunk, ``D`` the width of the model, ``V`` the vocabulary, ``B`` the columns of a tile.

A tile fits in the processor's cache, so operations on its logits cost little compared with the matrix products. On a
GPU, a tile has all columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from rlcore_models.products import bfloat16_products, linear
from torch import Tensor

TILE_ELEMENTS = 1 << 19
"""Number of logits in a tile on a CPU: 2 MiB in float32."""
SMALLEST_COLUMNS = 256
SMALLEST_EXPONENT = -80.0
"""Exponent below which exp is effectively 0. It replaces the logarithm of 0, so that 0 · -inf counts as 0."""


def slices(total: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``size``."""
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


class Tiles:
    """Splits the columns of the output layer into tiles, with memory for the logits of ``rows`` rows of one tile."""

    def __init__(self, hidden_MD: Tensor, head_VD: Tensor, rows: int) -> None:
        vocabulary, on_cpu = len(head_VD), head_VD.device.type == "cpu"
        columns = max(SMALLEST_COLUMNS, TILE_ELEMENTS // rows) if on_cpu else vocabulary
        self.dtype = torch.promote_types(head_VD.dtype, torch.float32)
        self.columns = list(slices(vocabulary, columns))
        self._head_VD = head_VD
        self._in_bfloat16 = hidden_MD.dtype == head_VD.dtype == torch.bfloat16
        self._first, self._second = (self.memory(rows * min(columns, vocabulary)) for _ in range(2))

    def memory(self, elements: int) -> Tensor:
        """Return uninitialised memory for this number of elements."""
        return torch.empty(elements, dtype=self.dtype, device=self._head_VD.device)

    def inputs(self, hidden_CD: Tensor) -> Tensor:
        """Return the rows of a chunk as `logits` multiplies them, so that they are converted once for all tiles.

        A GPU multiplies half precision with sums in float32. A CPU has no such product in torch, and logits between 8
        and 16 that are rounded to bfloat16 have steps of 0.06.
        """
        return hidden_CD if hidden_CD.is_cuda else hidden_CD.to(self.dtype)

    def logits(self, hidden_CD: Tensor, tile: slice, temperature: float, memory: Tensor | None = None) -> Tensor:
        """Return the logits [C, B] of `inputs` in ``memory``, or by default in memory that the next tile overwrites."""
        memory = self._first if memory is None else memory
        logits_CB = memory[: len(hidden_CD) * (tile.stop - tile.start)].view(len(hidden_CD), -1)
        head_BD = self._head_VD[tile]
        if hidden_CD.dtype != self.dtype:
            torch.mm(hidden_CD, head_BD.T, out_dtype=self.dtype, out=logits_CB)
        elif self._in_bfloat16:
            with bfloat16_products():
                torch.mm(hidden_CD, head_BD.to(self.dtype).T, out=logits_CB)
        else:
            logits_CB.copy_(linear(hidden_CD, head_BD.to(self.dtype)))
        return logits_CB if temperature == 1.0 else logits_CB.div_(temperature)

    def beside(self, logits_CB: Tensor) -> Tensor:
        """Return uninitialised memory with the shape of a tile's logits."""
        return self._second[: logits_CB.numel()].view_as(logits_CB)


class HeadGradient:
    """The gradients of hidden states and output layer, summed tile by tile in float32 (float64 for float64).

    The parts are not rounded to bfloat16 before they are added, because this would bias the training.
    """

    def __init__(self, hidden_MD: Tensor, head_VD: Tensor, *, wants_hidden: bool, wants_head: bool) -> None:
        dtype = torch.promote_types(head_VD.dtype, torch.float32)
        self._hidden_MD, self._head_VD = hidden_MD, head_VD
        self._grad_hidden_MD = torch.zeros_like(hidden_MD, dtype=dtype) if wants_hidden else None
        self._grad_head_VD = torch.zeros_like(head_VD, dtype=dtype) if wants_head else None

    @property
    def wanted(self) -> bool:
        """Whether any gradient is wanted."""
        return self._grad_hidden_MD is not None or self._grad_head_VD is not None

    def add(self, chunk: slice, tile: slice, grad_CB: Tensor) -> None:
        """Add the contribution of the logits of a chunk and a tile."""
        if self._grad_hidden_MD is not None:
            _add_product(self._grad_hidden_MD[chunk], grad_CB, self._head_VD[tile])
        if self._grad_head_VD is not None:
            _add_product(self._grad_head_VD[tile], grad_CB.T, self._hidden_MD[chunk])

    def result(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the hidden states and the output layer in their dtypes; None if not wanted."""
        hidden = None if self._grad_hidden_MD is None else self._grad_hidden_MD.to(self._hidden_MD.dtype)
        return hidden, None if self._grad_head_VD is None else self._grad_head_VD.to(self._head_VD.dtype)


def _add_product(sum_XZ: Tensor, left_XY: Tensor, right_YZ: Tensor) -> None:
    if right_YZ.is_cuda and right_YZ.dtype != sum_XZ.dtype:
        torch.addmm(sum_XZ, left_XY.to(right_YZ.dtype), right_YZ, out_dtype=sum_XZ.dtype, out=sum_XZ)
    else:
        sum_XZ.add_(linear(left_XY, right_YZ.to(sum_XZ.dtype).T))


def place(targets_C: Tensor, start: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return the column of each target within a tile, and whether the target is in the tile."""
    column_C = targets_C - start
    inside_C = (column_C >= 0) & (column_C < columns)
    return column_C.clamp_(0, columns - 1)[:, None], inside_C


class Normaliser(NamedTuple):
    """The log-sum-exp of rows of logits, as two terms in nats.

    Subtract ``largest_C`` from a logit first. The sum of both terms has the size of the logits, so it would round away
    digits of a log-probability when all logits of a row share an offset.
    """

    largest_C: Tensor
    """The largest logit."""
    log_sum_C: Tensor
    """The logarithm of the sum of ``exp(logit - largest)``."""


class Statistics:
    """Statistics of rows of logits, accumulated tile by tile with a running softmax (Milakov and Gimelshein 2018)."""

    def __init__(self, targets_C: Tensor, dtype: torch.dtype, *, with_entropy: bool) -> None:
        self._targets_C, self._with_entropy = targets_C, with_entropy
        self._largest_C = torch.full(targets_C.shape, torch.finfo(dtype).min, dtype=dtype, device=targets_C.device)
        # Running sums over the columns of exp(z) and exp(z) · z, where z is the logit minus the running maximum.
        self._sum_C, self._product_C = torch.zeros_like(self._largest_C), torch.zeros_like(self._largest_C)
        self._target_C = torch.zeros_like(self._largest_C)

    def add(self, start: int, logits_CB: Tensor, memory_CB: Tensor) -> Tensor:
        """Add the logits of the columns from ``start``; ``memory_CB`` is overwritten.

        Returns:
            The ``shift_C`` for `Slope.of_weights`. The memory of the logits now holds ``exp(logits - shift)``, so that
            no exponential is computed twice.
        """
        column_C1, inside_C = place(self._targets_C, start, logits_CB.shape[1])
        self._target_C = torch.where(inside_C, logits_CB.gather(1, column_C1)[:, 0], self._target_C)
        largest_C = torch.maximum(self._largest_C, logits_CB.amax(1))
        drop_C = (self._largest_C - largest_C).clamp_min_(SMALLEST_EXPONENT)
        shrink_C = drop_C.exp()
        if self._with_entropy:
            shifted_CB = torch.sub(logits_CB, largest_C[:, None], out=memory_CB).clamp_min_(SMALLEST_EXPONENT)
            weights_CB = torch.exp(shifted_CB, out=logits_CB)
            self._product_C = shrink_C * (self._product_C + drop_C * self._sum_C) + shifted_CB.mul_(weights_CB).sum(1)
        else:
            weights_CB = logits_CB.sub_(largest_C[:, None]).exp_()
        self._sum_C = shrink_C * self._sum_C + weights_CB.sum(1)
        self._largest_C = largest_C
        return largest_C

    @property
    def normaliser(self) -> Normaliser:
        """The two terms of the log-sum-exp of each row."""
        return Normaliser(self._largest_C, self._sum_C.log())

    def logprobs_and_entropy(self) -> tuple[Tensor, Tensor | None]:
        """Return the log-probabilities of the targets, and the entropy if requested."""
        largest_C, log_sum_C = self.normaliser
        entropy_C = log_sum_C - self._product_C / self._sum_C if self._with_entropy else None
        return (self._target_C - largest_C) - log_sum_C, entropy_C


class Slope:
    """The derivative of a loss with respect to the logits, from those for log-probabilities and entropies.

    d log p[y] / d z_j = 1[j = y] - p_j   and   d H / d z_j = -p_j (log p_j + H)
    """

    def __init__(
        self,
        targets_C: Tensor,
        normaliser: Normaliser,
        entropy_C: Tensor | None,
        grad_logprobs_C: Tensor | None,
        grad_entropy_C: Tensor | None,
        temperature: float,
    ) -> None:
        none_C = torch.zeros_like(normaliser.log_sum_C)
        self._targets_C, self._normaliser = targets_C, normaliser
        self._logprobs_C = (none_C if grad_logprobs_C is None else grad_logprobs_C) / temperature
        self._entropy_C1: Tensor | None = None
        if entropy_C is not None and grad_entropy_C is not None:
            self._entropy_C1, self._spread_C1 = entropy_C[:, None], grad_entropy_C[:, None] / temperature

    def of_logits(self, start: int, logits_CB: Tensor, memory_CB: Tensor) -> Tensor:
        """Compute the derivative for the columns from ``start``, and overwrite the logits with it."""
        largest_C = self._normaliser.largest_C
        return self.of_weights(start, logits_CB.sub_(largest_C[:, None]).exp_(), largest_C, memory_CB)

    def of_weights(self, start: int, weights_CB: Tensor, shift_C: Tensor, memory_CB: Tensor) -> Tensor:
        """Compute the same from ``exp(logits - shift)``, as left by `Statistics.add`, and overwrite it."""
        largest_C, log_sum_C = self._normaliser
        log_scale_C1 = ((shift_C - largest_C) - log_sum_C)[:, None]
        slope_C1 = -self._logprobs_C[:, None]
        if self._entropy_C1 is None:
            grad_CB = weights_CB.mul_(slope_C1 * log_scale_C1.exp())
        else:
            log_CB = torch.log(weights_CB, out=memory_CB).add_(log_scale_C1).clamp_min_(SMALLEST_EXPONENT)
            log_CB.add_(self._entropy_C1).mul_(-self._spread_C1).add_(slope_C1).mul_(log_scale_C1.exp())
            grad_CB = weights_CB.mul_(log_CB)
        column_C1, inside_C = place(self._targets_C, start, grad_CB.shape[1])
        return grad_CB.scatter_add_(1, column_C1, torch.where(inside_C, self._logprobs_C, 0.0)[:, None])
