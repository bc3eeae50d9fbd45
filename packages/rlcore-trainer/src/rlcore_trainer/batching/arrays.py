"""Convert the compact arrays of `rlcore.types` to tensors."""

from __future__ import annotations

from typing import Any

import torch
from rlcore.types import FrozenArray
from torch import Tensor

DTYPES = {"i": torch.int32, "?": torch.bool, "d": torch.float64}
"""Tensor data type by array type code."""


def tensor_of(values: FrozenArray[Any]) -> Tensor:
    """Return the values as a CPU tensor, with one memory copy and no Python loop."""
    dtype = DTYPES[values.TYPECODE]
    return torch.frombuffer(bytearray(values.memory), dtype=dtype) if len(values) else torch.empty(0, dtype=dtype)
