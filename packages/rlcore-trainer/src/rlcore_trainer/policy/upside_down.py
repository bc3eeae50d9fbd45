"""Temporarily modified weights, to verify that weight transfers work.

Each tensor is reversed along its first axis, and small matrices are multiplied by a power of two so that each affects
the logits. Both changes are exactly reversible. For an adapter, only the adapter is modified, because the base is never
transferred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.policy.lora import has_adapter, values_of, write_values


@contextmanager
def upside_down(model: PreTrainedModel) -> Iterator[None]:
    """Modify every trained tensor inside the block, and restore it exactly afterwards."""
    if has_adapter(model):
        before = values_of(model)
        write_values(model, {name: _turned(value) for name, value in before.items()})
        try:
            yield
        finally:
            write_values(model, before)
        return
    factors = [_factor(parameter.detach()) for parameter in model.parameters()]
    _reverse(model, factors)
    try:
        yield
    finally:
        _reverse(model, [1 / factor for factor in factors])


def _turned(value: Tensor) -> Tensor:
    """Return a modified copy of an adapter tensor. Zeros of a new adapter get nonzero values to affect the logits."""
    if not value.any():
        return torch.arange(value.numel()).cos().div(math.sqrt(value.shape[-1])).view(value.shape).to(value)
    return value.flip(0) * _factor(value)


def _factor(tensor: Tensor) -> float:
    """Return the power of two that scales a matrix to entries of about ``1 / sqrt(fan in)``; 1 if they are larger."""
    size = float(tensor.float().square().mean().sqrt()) * math.sqrt(tensor.shape[-1])
    return 2.0 ** max(0, round(-math.log2(size))) if tensor.ndim > 1 and 0 < size < math.inf else 1.0


@torch.no_grad()
def _reverse(model: PreTrainedModel, factors: list[float]) -> None:
    for parameter, factor in zip(model.parameters(), factors, strict=True):
        parameter.copy_(parameter.flip(0) * factor)
