"""Lazy tensors: the location of their elements and how to read a range of them.

A model is a mapping from names to `Tensor`. Files are memory-mapped: reading a range touches only its pages, and these
do not count as anonymous memory of the process.
Legend: ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rlcore.errors import UserError

from rlcore_merge.elements import Array, Kind

Shape = tuple[int, ...]


class Tensor(Protocol):
    """A tensor with elements that can be read by range."""

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    def read(self, start: int, count: int) -> Array:
        """``count`` elements from ``start`` on in row-major order, as a contiguous vector, which may be a view."""


def size_of(tensor: Tensor) -> int:
    """Number of elements."""
    return prod(tensor.shape)


class MappedFile:
    """A file that is mapped into memory at the first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise UserError("a checkpoint file cannot be read", found=str(error), where=str(path)) from None

    @cached_property
    def buffer(self) -> mmap.mmap | bytes:
        """Content of the file."""
        if not self.size:
            return b""
        try:
            with self.path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UserError("a checkpoint file cannot be read", found=str(error), where=str(self.path)) from None


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor at one position of a file, with any strides."""

    file: MappedFile
    position: int
    """Position of the first element, in bytes from the start of the file."""
    kind: Kind
    shape: Shape
    strides: Shape | None = None
    """In elements; None if the tensor is contiguous."""
    checksum: int | None = None
    """CRC-32 of the storage, if the file records it and the storage holds only this tensor."""

    def __post_init__(self) -> None:
        if self.strides is not None and self.strides == row_major(self.shape):
            object.__setattr__(self, "strides", None)
        if self.position + self.span * self.kind.size > self.file.size:
            raise UserError(
                "a checkpoint file is truncated",
                found=f"{self.file.size:,} bytes, but a tensor ends at {self.position + self.span * self.kind.size:,}",
                where=str(self.file.path),
                fix="copy or save the file again",
            )

    @property
    def span(self) -> int:
        """Number of elements from the first to the last, including gaps."""
        if self.strides is None:
            return prod(self.shape)
        if not prod(self.shape):
            return 0
        return 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))

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
        out = np.empty(count, self.kind.storage)
        fill(out, start, self.shape, [Piece((0,) * len(self.shape), self)])
        return out

    def reshaped(self, shape: Shape) -> Stored:
        """The same elements in another shape. The tensor must be contiguous."""
        assert self.strides is None
        assert prod(shape) == prod(self.shape)
        return Stored(self.file, self.position, self.kind, shape, None, self.checksum)

    def part(self, start: int, count: int) -> Stored:
        """A range of the elements as a vector. The tensor must be contiguous."""
        assert self.strides is None
        assert start + count <= prod(self.shape)
        return Stored(self.file, self.position + start * self.kind.size, self.kind, (count,))


class Block(Protocol):
    """The content of a piece of a tensor."""

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    def array(self) -> Array:
        """All elements as a view of a mapped file."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block and the offsets of its first element in the full tensor."""

    offsets: Shape
    block: Block


@dataclass(frozen=True)
class Assembled:
    """A tensor assembled from several blocks."""

    kind: Kind
    shape: Shape
    pieces: Sequence[Piece] = field(repr=False)

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`. A view if one block contains the range and spans all axes but the first."""
        if self._by_rows:
            row = prod(self.shape[1:])
            for piece in self.pieces:
                first = piece.offsets[0] * row
                if first <= start and start + count <= first + prod(piece.block.shape):
                    return _flat(piece.block.array())[start - first : start - first + count]
        out = np.empty(count, self.kind.storage)
        fill(out, start, self.shape, self.pieces)
        return out

    @cached_property
    def _by_rows(self) -> bool:
        return bool(self.shape) and all(piece.block.shape[1:] == self.shape[1:] for piece in self.pieces)

    @property
    def cuts(self) -> list[int]:
        """Positions at which a block begins, if the tensor is split along the first axis only."""
        if not self._by_rows:
            return []
        return sorted({piece.offsets[0] * prod(self.shape[1:]) for piece in self.pieces})


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The elements of an assembled tensor in another shape."""

    whole: Assembled
    shape: Shape

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""
        return self.whole.kind

    @property
    def cuts(self) -> list[int]:
        """See `Assembled.cuts`."""
        return self.whole.cuts

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`."""
        return self.whole.read(start, count)


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a contiguous tensor."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def fill(out_E: Array, start: int, shape: Shape, pieces: Sequence[Piece]) -> None:
    """Fill a vector with the elements of an assembled tensor from ``start`` on.

    A range is split into a partial first row, full rows and a partial last row. Partial rows are split again along the
    next axis, so that each step copies a box.
    """
    _fill(out_E, start, start + out_E.size, shape, (), pieces)


def _fill(out: Array, start: int, stop: int, shape: Shape, prefix: Shape, pieces: Sequence[Piece]) -> None:
    if start == stop:
        return
    axis = len(prefix)
    if axis == len(shape):
        _copy_box(out.reshape(()), prefix, (), pieces)
        return
    inner = prod(shape[axis + 1 :])
    first, head = divmod(start, inner)
    last, tail = divmod(stop, inner)
    if first == last:
        _fill(out, head, tail, shape, (*prefix, first), pieces)
        return
    done = 0
    if head:
        done = inner - head
        _fill(out[:done], head, inner, shape, (*prefix, first), pieces)
        first += 1
    if last > first:
        box = out[done : done + (last - first) * inner].reshape((last - first, *shape[axis + 1 :]))
        _copy_box(box, prefix, (first, *(0 for _ in shape[axis + 1 :])), pieces)
        done += (last - first) * inner
    if tail:
        _fill(out[done:], 0, tail, shape, (*prefix, last), pieces)


def _copy_box(box: Array, prefix: Shape, lower: Shape, pieces: Sequence[Piece]) -> None:
    """Copy a box from the blocks: ``prefix`` fixes the leading axes, ``lower`` is the start on the others."""
    for piece in pieces:
        own, lengths = piece.offsets, piece.block.shape
        inside = [index - offset for index, offset in zip(prefix, own, strict=False)]
        if any(not 0 <= index < length for index, length in zip(inside, lengths, strict=False)):
            continue
        into, taken = [], []
        for axis, low in enumerate(lower, start=len(prefix)):
            begin = max(low, own[axis])
            end = min(low + box.shape[axis - len(prefix)], own[axis] + lengths[axis])
            if begin >= end:
                break
            into.append(slice(begin - low, end - low))
            taken.append(slice(begin - own[axis], end - own[axis]))
        else:
            box[tuple(into)] = piece.block.array()[tuple[Any, ...]((*inside, *taken))]


def _flat(array: Array) -> Array:
    return array.reshape(-1)


def ranges(tensor: Tensor, limit: int) -> Iterator[tuple[int, int]]:
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
