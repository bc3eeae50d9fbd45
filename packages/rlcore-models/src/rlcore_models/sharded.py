"""Tensors of which each process of a run holds a part.

They are DTensors, recognised by their methods, because importing their class takes a second. A whole tensor is one that
is not divided.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def is_sharded(module: nn.Module) -> bool:
    """Return whether the processes of the run hold parts of the module's parameters."""
    return any(hasattr(parameter, "full_tensor") for parameter in module.parameters())


def whole(tensor: Tensor) -> Tensor:
    """Return the whole tensor. All processes that hold a part must call this together."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def local(tensor: Tensor) -> Tensor:
    """Return the part of this process, which shares its memory; a whole tensor itself."""
    part: Any = getattr(tensor, "to_local", None)
    return tensor if part is None else part()


@torch.no_grad()
def put(tensor: Tensor, values: Tensor) -> None:
    """Overwrite a tensor, or the part of this process.

    Args:
        tensor: whole or divided
        values: whole, or divided like ``tensor``
    """
    if hasattr(tensor, "to_local") and not hasattr(values, "to_local"):
        rows = rows_of(tensor)
        local(tensor).copy_(values[rows] if values.ndim else values)
    else:
        tensor.copy_(values)


def rows_of(tensor: Any) -> slice:
    """Return which rows of a divided tensor this process holds."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return slice(offset[0], offset[0] + shape[0])
