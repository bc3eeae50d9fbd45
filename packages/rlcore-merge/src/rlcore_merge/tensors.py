"""Lazy tensors: the kinds of elements, the files that store them, and how to read a range of them.

A model is a mapping from names to `Tensor`. Files are memory-mapped: reading a range touches only its pages, and these
do not count as anonymous memory of the process. Arrays hold elements as stored: bfloat16 as ``uint16`` and float8 as
``uint8``, which numpy supports.
Legend: ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NoReturn, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt
from rlcore.errors import UserError
from zlib_ng.zlib_ng import crc32

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

RANGE = 1 << 17
"""Elements per range: few enough to fit the processor's cache and to reuse freed memory."""
MOST_AXES = 32
"""Axes of a numpy array."""
MOST = 2**63 - 1
"""Bytes of a numpy array."""
COPY_AGAIN = "copy or save the file again"


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


KINDS: dict[str, Kind] = {
    name: Kind(name, torch_name, np.dtype(storage), name in {"F64", "F32", "F16", "BF16"})
    for name, torch_name, storage in (
        ("F64", "float64", "<f8"), ("F32", "float32", "<f4"), ("F16", "float16", "<f2"), ("BF16", "bfloat16", "<u2"),
        ("F8_E4M3", "float8_e4m3fn", "u1"), ("F8_E5M2", "float8_e5m2", "u1"), ("F8_E8M0", "float8_e8m0fnu", "u1"),
        ("I64", "int64", "<i8"), ("I32", "int32", "<i4"), ("I16", "int16", "<i2"), ("I8", "int8", "i1"),
        ("U64", "uint64", "<u8"), ("U32", "uint32", "<u4"), ("U16", "uint16", "<u2"), ("U8", "uint8", "u1"),
        ("BOOL", "bool", "u1"), ("C64", "complex64", "<c8"),
    )
}  # fmt: skip
"""Kinds by their safetensors name. Only kinds with ``floating`` are converted."""
BY_TORCH_NAME: dict[str, Kind] = {kind.torch_name: kind for kind in KINDS.values()}
_BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


def to_float32(stored_E: Array, kind: Kind) -> npt.NDArray[np.float32]:
    """Stored elements as float32; exact for all kinds except F64. A view if they are already float32."""
    if kind.name == "BF16":
        return stored_E.view(_BFLOAT16).astype(np.float32)
    if not kind.floating:
        raise ValueError(f"{kind.name} is not a floating kind")
    return stored_E.astype(np.float32, copy=False)


def convert(stored_E: Array, source: Kind, target: Kind) -> Array:
    """Convert elements from one kind to another; the same array if the kinds are equal.

    Values are rounded to nearest with ties to even, as in torch; NaN stays NaN.
    """
    if source is target:
        return stored_E
    values_E = to_float32(stored_E, source)
    with np.errstate(invalid="ignore", over="ignore"):
        if target.name == "BF16":
            return values_E.astype(_BFLOAT16).view(np.uint16)
        return values_E.astype(target.storage, copy=False)


class MappedFile:
    """A file that is mapped into memory at the first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from None

    @cached_property
    def buffer(self) -> mmap.mmap | bytes:
        """Content of the file."""
        if not self.size:
            return b""
        try:
            with self.path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> UserError:
        return UserError("a checkpoint file cannot be read", found=str(error), where=str(self.path))

    def damaged(self, found: str) -> UserError:
        """The error for content that contradicts itself."""
        return UserError("a checkpoint file is damaged", found=found, where=str(self.path), fix=COPY_AGAIN)


@dataclass(frozen=True, slots=True)
class Record:
    """A range of a file with one checksum."""

    file: MappedFile
    position: int
    size: int
    checksum: int | None
    """CRC-32; None if the file was saved without checksums."""
    name: str

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.position + self.size

    def read(self) -> bytes:
        """The verified content. Raises `UserError` if it is damaged."""
        content = bytes(self.file.buffer[self.position : self.end])
        self.verify(crc32(content))
        return content

    def verify(self, checksum: int) -> None:
        """Raise `UserError` if the checksum of the content is another than the recorded one."""
        if self.checksum not in (None, checksum):
            raise self.file.damaged(f"the checksum of record {self.name} does not match its content")


class Tensor(Protocol):
    """A tensor with elements that can be read by range.

    It may have ``output_kind``, the kind in which it is written if the dtype is kept, and ``cuts``, see `ranges`.
    """

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    def read(self, start: int, count: int) -> Array:
        """``count`` elements from ``start`` on in row-major order, as a contiguous vector, which may be a view."""

    def leaves(self) -> Iterable[Stored]:
        """The stored tensors that this one is computed from, and copies of them in other files."""


def size_of(tensor: Tensor) -> int:
    """Number of elements."""
    return prod(tensor.shape)


def output_kind(tensor: Tensor) -> Kind:
    """The kind in which a tensor is written if the dtype is kept."""
    kind: Kind = getattr(tensor, "output_kind", tensor.kind)
    return kind


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a contiguous tensor."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file, with any strides. All of its elements are inside its record or, without one, its file."""

    file: MappedFile
    position: int
    """Position of the first element, in bytes from the start of the file."""
    kind: Kind
    shape: Shape
    strides: Shape | None = None
    """In elements; None if the tensor is contiguous."""
    record: Record | None = None
    """The range of the file that holds it, if the file has a checksum for each range."""
    copies: tuple[Stored, ...] = ()
    """The same tensor in other files. They are verified but not read."""

    def __post_init__(self) -> None:
        strides = self.strides
        if len(self.shape) > MOST_AXES or min((*self.shape, *(strides or ()), 0)) < 0:
            self._raise_outside()
        if prod(length for length in self.shape if length) * self.kind.size > MOST:
            self._raise_outside()
        if strides is not None:
            if len(strides) != len(self.shape):
                self._raise_outside()
            usual = row_major(self.shape)
            differ = [axis for axis, length in enumerate(self.shape) if length > 1 and strides[axis] != usual[axis]]
            if not differ or not prod(self.shape):
                object.__setattr__(self, "strides", None)
        begin, end = self._bounds
        bytes_needed = self.span * self.kind.size
        if not bytes_needed:  # of any offset, as in torch
            object.__setattr__(self, "position", min(max(self.position, begin), end))
        elif self.position < begin or self.position + bytes_needed > end:
            self._raise_outside()

    @property
    def _bounds(self) -> tuple[int, int]:
        return (0, self.file.size) if self.record is None else (self.record.position, self.record.end)

    def _raise_outside(self) -> NoReturn:
        begin, end = self._bounds
        needed = self.position + size_of(self) * self.kind.size
        if self.record is None and self.strides is None and needed > end:
            found = f"{end:,} bytes, but a tensor ends at {needed:,}"
            raise UserError("a checkpoint file is truncated", found=found, where=str(self.file.path), fix=COPY_AGAIN)
        strides = "" if self.strides is None else f" and strides {list(self.strides)}"
        raise self.file.damaged(
            f"a {self.kind.torch_name} tensor of shape {list(self.shape)}{strides} at byte "
            f"{self.position - begin:,} of {end - begin:,}"
        )

    @property
    def span(self) -> int:
        """Number of elements from the first to the last, including gaps."""
        if self.strides is None:
            return prod(self.shape)
        if not prod(self.shape):
            return 0
        return 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))

    @property
    def checksum(self) -> int | None:
        """CRC-32 of the elements, if the file records it."""
        record = self.record
        if record is None or self.strides is not None or size_of(self) * self.kind.size != record.size:
            return None
        return record.checksum

    def leaves(self) -> Iterator[Stored]:
        """See `Tensor.leaves`."""
        yield self
        yield from self.copies

    def array(self) -> Array:
        """All elements in their shape as a view of the mapped file."""
        flat = np.frombuffer(self.file.buffer, self.kind.storage, count=self.span, offset=self.position)
        if self.strides is None:
            return flat.reshape(self.shape)
        strides = tuple(stride * self.kind.size for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`. A view if the tensor is contiguous."""
        if self.strides is None:
            place = self.position + start * self.kind.size
            return np.frombuffer(self.file.buffer, self.kind.storage, count=count, offset=place)
        return self.array().flat[start : start + count]

    def reshaped(self, shape: Shape) -> Stored:
        """The same elements in another shape. Raises `ValueError` if the tensor is not contiguous."""
        if self.strides is not None or prod(shape) != prod(self.shape):
            raise ValueError(f"a tensor of shape {list(self.shape)} cannot be read as {list(shape)}")
        return Stored(self.file, self.position, self.kind, shape, None, self.record, self.copies)

    def part(self, start: int, count: int) -> Stored:
        """A range of the elements as a vector. Raises `ValueError` if the tensor is not contiguous or shorter."""
        if self.strides is not None or not 0 <= start <= start + count <= prod(self.shape):
            raise ValueError(f"a tensor of shape {list(self.shape)} has no elements {start:,} to {start + count:,}")
        return Stored(self.file, self.position + start * self.kind.size, self.kind, (count,), None, self.record)


def ranges(tensor: Tensor, limit: int = RANGE) -> Iterator[tuple[int, int]]:
    """Ranges ``(start, count)`` of at most ``limit`` elements that cover a tensor and are cheap to read.

    Ranges end at the boundaries of blocks and, if rows are not longer than ``limit``, of rows.
    """
    size = size_of(tensor)
    row = prod(tensor.shape[1:]) if tensor.shape else 1
    step = limit // row * row if 0 < row <= limit else limit
    cuts = [cut for cut in getattr(tensor, "cuts", ()) if 0 < cut < size]
    for begin, end in zip([0, *cuts], [*cuts, size], strict=True):
        for start in range(begin, end, step):
            yield start, min(step, end - start)


def identical(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are bitwise equal."""
    if left.kind is not right.kind or left.shape != right.shape:
        return False
    return left is right or all(left.read(*part).tobytes() == right.read(*part).tobytes() for part in ranges(left))
