"""Weights that depend only on their names and sizes, so that golden files need not contain them."""

from __future__ import annotations

import torch
from torch import Tensor


def made_up(name: str, shape: list[int]) -> Tensor:
    """Return random numbers of the size of a trained layer."""
    count = int(torch.tensor(shape).prod())
    generator = torch.Generator().manual_seed(len(name) * 1000 + count)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if name.endswith("running_var"):
        return (values.abs() + 0.5).float()
    if len(shape) > 1:
        return (values / (count / shape[0]) ** 0.5).float()
    return (0.2 * values + name.endswith("weight")).float()
