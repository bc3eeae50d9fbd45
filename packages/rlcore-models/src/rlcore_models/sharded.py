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


def gathered(module: nn.Module, *, trained: bool = False) -> dict[str, Tensor] | None:
    """Return whole parameters and saved buffers on the CPU in the main process, and None in the others.

    All processes call it together. One tensor at a time is gathered. Tied parameters are the same object.

    Args:
        module: the module
        trained: only parameters that require a gradient
    """
    import torch.distributed as distributed

    main, found, seen = distributed.get_rank() == 0, dict[str, Tensor](), dict[int, Tensor | None]()
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = {} if trained else {name: one for name, one in module.state_dict().items() if name not in parameters}
    for name, tensor in (parameters | buffers).items():
        if trained and not tensor.requires_grad:
            continue
        if id(tensor) not in seen:
            values = whole(tensor.detach())
            seen[id(tensor)] = values.cpu() if main else None
        if (kept := seen[id(tensor)]) is not None:
            found[name] = kept
    return found if main else None
