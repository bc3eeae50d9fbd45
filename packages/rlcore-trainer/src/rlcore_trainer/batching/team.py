"""Sequence parallelism: the processes of a team compute a packed row together.

Each process computes the layers for an equal part of the row's tokens. Attention needs all tokens, so the processes
exchange the tokens of all heads for all tokens of some heads, and back after it (Ulysses; Jacobs et al. 2023,
arXiv 2309.14509).

Axes: ``N`` the tokens of the row, ``P`` those of a process, ``H`` heads, ``J`` the heads of a process, ``T`` the
processes of the team.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
from rlcore.errors import UserError
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad


@dataclass(frozen=True, slots=True)
class Team:
    """The processes that compute each micro-batch together. All of them must call the same methods in the same order.

    The methods are differentiable.
    """

    index: int
    """The place of this process among them."""
    size: int
    group: Any
    """The process group of torch."""

    def part(self, x: Tensor, dim: int) -> Tensor:
        """Return the tokens of this process along a dimension counted from the last, P of N, filled up with zeros."""
        start, stop = self.bounds(tokens := x.shape[dim])
        filled = pad(x, [*[0, 0] * (-dim - 1), 0, (stop - start) * self.size - tokens])
        return filled.narrow(dim, start, stop - start)

    def bounds(self, tokens: int) -> tuple[int, int]:
        """Return where the tokens of this process begin and end in a row, filled up at its end."""
        length = -(-tokens // self.size)
        return self.index * length, (self.index + 1) * length

    def joined(self, x_PX: Tensor, tokens: int) -> Tensor:
        """Return the values of all tokens of the row, [N, ...], in every process."""
        return _exchanged(x_PX.expand(self.size, *x_PX.shape), self.group).flatten(0, 1)[:tokens]

    def by_heads(self, x_PHD: Tensor, tokens: int) -> Tensor:
        """Return all tokens of the heads of this process, [N, J, D].

        Heads of keys and values are repeated if they cannot be divided.
        """
        if (repeated := self.size // math.gcd(self.size, x_PHD.shape[1])) > 1:
            x_PHD = x_PHD.repeat_interleave(repeated, dim=1)
        x_PTJD = x_PHD.reshape(len(x_PHD), self.size, -1, x_PHD.shape[-1])
        return _exchanged(x_PTJD.transpose(0, 1), self.group).flatten(0, 1)[:tokens]

    def by_tokens(self, x_NJD: Tensor) -> Tensor:
        """Return all heads of the tokens of this process, [P, H, D]."""
        start, stop = self.bounds(len(x_NJD))
        filled = pad(x_NJD, [0, 0, 0, 0, 0, (stop - start) * self.size - len(x_NJD)])
        x_TPJD = filled.reshape(self.size, -1, *x_NJD.shape[1:])
        return _exchanged(x_TPJD, self.group).transpose(0, 1).flatten(1, 2)

    def check_heads(self, heads: int) -> None:
        """Raise an error if the heads of the queries cannot be divided."""
        if heads % self.size:
            raise UserError(
                "strategy.sequence_parallel must divide the heads of the model's attention",
                found=f"{heads} heads and strategy.sequence_parallel={self.size}",
                where="model.path",
                fix=f"strategy.sequence_parallel={math.gcd(heads, self.size)}",
            )


class _Exchange(torch.autograd.Function):
    """Send the i-th block to the i-th process, and receive one from each. Gradients return on the same way."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _sent(blocks, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _sent(grad, ctx.group), None


def _sent(blocks: Tensor, group: Any) -> Tensor:
    blocks = blocks.contiguous()
    received = torch.empty_like(blocks)
    distributed.all_to_all_single(received, blocks, group=group)
    return received


def _exchanged(blocks: Tensor, group: Any) -> Tensor:
    apply: Any = _Exchange.apply
    received: Tensor = apply(blocks, group)
    return received
