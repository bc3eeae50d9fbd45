"""Kinds of elements and conversion between them, without torch.

Arrays hold elements as stored: bfloat16 as ``uint16`` and float8 as ``uint8``, which numpy supports.
Legend: ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def refuse_state(self: object, state: Any) -> None:
    """The ``__setstate__`` of classes with objects that a pickle can name: a pickle must not change them."""
    raise TypeError(f"the state of {type(self).__name__} cannot be set")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of element: its name in safetensors files, its name in torch, and its numpy dtype."""

    name: str
    torch_name: str
    storage: np.dtype[Any]
    floating: bool

    __setstate__ = refuse_state

    @property
    def size(self) -> int:
        """Bytes per element."""
        return self.storage.itemsize


def _kind(name: str, torch_name: str, storage: str, *, floating: bool = False) -> Kind:
    return Kind(name, torch_name, np.dtype(storage), floating)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _kind("F64", "float64", "<f8", floating=True),
        _kind("F32", "float32", "<f4", floating=True),
        _kind("F16", "float16", "<f2", floating=True),
        _kind("BF16", "bfloat16", "<u2", floating=True),
        _kind("F8_E4M3", "float8_e4m3fn", "u1"),
        _kind("F8_E5M2", "float8_e5m2", "u1"),
        _kind("F8_E8M0", "float8_e8m0fnu", "u1"),
        _kind("I64", "int64", "<i8"),
        _kind("I32", "int32", "<i4"),
        _kind("I16", "int16", "<i2"),
        _kind("I8", "int8", "i1"),
        _kind("U64", "uint64", "<u8"),
        _kind("U32", "uint32", "<u4"),
        _kind("U16", "uint16", "<u2"),
        _kind("U8", "uint8", "u1"),
        _kind("BOOL", "bool", "u1"),
        _kind("C64", "complex64", "<c8"),
    )
}
"""Kinds by their safetensors name. Only kinds with ``floating`` are converted."""

BY_TORCH_NAME: dict[str, Kind] = {kind.torch_name: kind for kind in KINDS.values()}

REQUESTED: dict[str, str | None] = {"keep": None, "bf16": "BF16", "fp16": "F16", "fp32": "F32"}
"""The values of ``--dtype``."""

_BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


def to_float32(stored_E: Array, kind: Kind) -> npt.NDArray[np.float32]:
    """Stored elements as float32; exact for all kinds except F64. A view if they are already float32."""
    if kind.name == "BF16":
        return stored_E.view(_BFLOAT16).astype(np.float32)
    if not kind.floating:
        raise ValueError(f"{kind.name} is not a floating kind")
    return stored_E.astype(np.float32, copy=False)


def from_float32(values_E: npt.NDArray[np.float32], kind: Kind) -> Array:
    """Float32 values rounded to a kind, to nearest with ties to even, as in torch; NaN stays NaN."""
    if kind.name == "BF16":
        with np.errstate(invalid="ignore", over="ignore"):
            return values_E.astype(_BFLOAT16).view(np.uint16)
    if kind.name == "F16":
        with np.errstate(over="ignore"):
            return values_E.astype(np.float16)
    return values_E.astype(kind.storage, copy=False)


def narrower(one: Kind, other: Kind) -> Kind | None:
    """The kind to compare two kinds in: the narrower one, F32 for F16 and BF16, and None unless both are floating."""
    if not (one.floating and other.floating):
        return None
    if one.size == other.size:
        return one if one is other else KINDS["F32"]
    return min(one, other, key=lambda kind: kind.size)


def convert(stored_E: Array, source: Kind, target: Kind) -> Array:
    """Convert elements from one kind to another; the same array if the kinds are equal."""
    if source is target:
        return stored_E
    return from_float32(to_float32(stored_E, source), target)
