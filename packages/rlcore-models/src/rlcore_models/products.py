"""Linear layers on a CPU, multiplied by oneDNN.

torch multiplies float32 matrices with oneMKL, which reaches less than half the speed of oneDNN on an AMD processor. In
half precision torch uses oneDNN, but rearranges the weight in each call, which takes as long as the product with 64
rows. A packed weight is rearranged once.

Axes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SMALLEST = 100_000
"""Elements of a weight from which on oneDNN multiplies it here. It prepares a kernel for each new number of rows, which
takes up to 1 ms."""
CACHED_KERNELS = "128"
"""oneDNN and torch's interface to it keep a kernel of 0.4 MiB for each of this many last shapes. The default is 1,024,
which a run reaches, because nearly every micro-batch has another number of rows. Kernels lie between the activations on
the heap, whose gaps they increase. With fewer kernels, the equal layers of a model still share theirs."""
for _variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_variable, CACHED_KERNELS)  # read at the first product
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return ``x weightᵀ + bias`` [N, O] for a weight that may be packed. There are no gradients."""
    if weight_OI.is_mkldnn or (weight_OI.dtype == torch.float32 and multiplies(weight_OI)):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
        return product
    return functional.linear(x_NI, weight_OI, bias_O)


def pack(weight_OI: Tensor) -> Tensor:
    """Return a copy of the weight in the order in which oneDNN reads it, or the weight itself where it cannot."""
    if not multiplies(weight_OI):
        return weight_OI
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), None)
    return packed


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Let oneDNN multiply float32 matrices in bfloat16, summed in float32: exact for values that fit in bfloat16.

    A processor without such instructions ignores the setting. It applies to all threads, so it is set for single
    products only. Engine and trainer may multiply at the same time: the last one to end restores the setting.
    """
    _bfloat16.enter()
    try:
        yield
    finally:
        _bfloat16.leave()


class _Bfloat16:
    """Counts the threads that multiply in bfloat16."""

    def __init__(self) -> None:
        self._lock, self._threads, self._before = threading.Lock(), 0, "none"
        self._matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]

    def enter(self) -> None:
        with self._lock:
            if not self._threads:
                self._before, self._matmul.fp32_precision = self._matmul.fp32_precision, "bf16"
            self._threads += 1

    def leave(self) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads:
                self._matmul.fp32_precision = self._before


_bfloat16 = _Bfloat16()


def multiplies(weight: Tensor) -> bool:
    """Return whether oneDNN multiplies a weight of this size, type and device."""
    return (
        weight.device.type == "cpu" and weight.numel() >= SMALLEST and weight.dtype in TYPES and _supports(weight.dtype)
    )


@cache
def multiplies_bfloat16() -> bool:
    """Return whether `bfloat16_products` are faster here than those in float32."""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


@cache
def has_matrix_units() -> bool:
    """Return whether the processor multiplies bfloat16 with AMX, which oneMKL then does as fast as oneDNN."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


@cache
def _supports(dtype: torch.dtype) -> bool:
    backends: Any = torch.backends
    if not backends.mkldnn.is_available() or not backends.mkl.is_available():  # not an x86 processor
        return False
    one = torch.ones(16, 16, dtype=dtype)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(one, None)
        torch.ops.mkldnn._linear_pointwise(one, packed, None, "none", [], "")
    except (RuntimeError, AttributeError):  # a type that this processor cannot multiply
        return False
    return True


__all__ = ["bfloat16_products", "has_matrix_units", "linear", "multiplies", "multiplies_bfloat16", "pack"]
