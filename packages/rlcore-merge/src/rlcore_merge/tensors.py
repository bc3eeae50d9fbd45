"""Tensors that are described, not loaded: where their elements lie and how a range of them is read.

An index of a model is a mapping from names to `Tensor`. Reading a range touches only the pages that hold it; files are
mapped, so that what is read is not counted as memory of the process's own.
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
    """Anything whose elements can be read by range."""

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    def read(self, start: int, count: int) -> Array:
        """``count`` elements from ``start`` on in row-major order, as a contiguous vector; it may be a view."""


def size_of(tensor: Tensor) -> int:
    """Number of elements."""
    return prod(tensor.shape)


class MappedFile:
    """A file that is mapped into memory when it is first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise UserError("a file of the checkpoint cannot be read", found=str(error), where=str(path)) from None

    @cached_property
    def buffer(self) -> mmap.mmap | bytes:
        """The bytes."""
        if not self.size:
            return b""
        try:
            with self.path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UserError("a file of the checkpoint cannot be read", found=str(error), where=str(self.path)) from None


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in one place of a file, with any strides."""

    file: MappedFile
    position: int
    """Of its first element, in bytes from the start of the file."""
    kind: Kind
    shape: Shape
    strides: Shape | None = None
    """In elements; None where rows follow each other without gaps."""
    checksum: int | None = None
    """CRC-32 of the whole storage that holds it, where the file says so and nothing else lies in it."""

    def __post_init__(self) -> None:
        if self.strides is not None and self.strides == row_major(self.shape):
            object.__setattr__(self, "strides", None)
        if self.position + self._span * self.kind.size > self.file.size:
            raise UserError(
                "a file of the checkpoint is truncated",
                found=f"{self.file.size:,} bytes, and a tensor ends at {self.position + self._span * self.kind.size:,}",
                where=str(self.file.path),
                mend="copy or save the file again",
            )

    @property
    def _span(self) -> int:
        if self.strides is None:
            return prod(self.shape)
        if not prod(self.shape):
            return 0
        return 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))

    def array(self) -> Array:
        """All elements in their shape, as a view of the mapped file."""
        flat = np.frombuffer(self.file.buffer, self.kind.storage, count=self._span, offset=self.position)
        if self.strides is None:
            return flat.reshape(self.shape)
        strides = tuple(stride * self.kind.size for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)

    def read(self, start: int, count: int) -> Array:
        """As `Tensor.read`; a view where the elements lie side by side."""
        if self.strides is None:
            place = self.position + start * self.kind.size
            return np.frombuffer(self.file.buffer, self.kind.storage, count=count, offset=place)
        out = np.empty(count, self.kind.storage)
        fill(out, start, self.shape, [Piece((0,) * len(self.shape), self)])
        return out

    def reshaped(self, shape: Shape) -> Stored:
        """The same elements in another shape; only where they lie side by side."""
        assert self.strides is None
        assert prod(shape) == prod(self.shape)
        return Stored(self.file, self.position, self.kind, shape, None, self.checksum)

    def part(self, start: int, count: int) -> Stored:
        """A range of its elements as a vector; only where they lie side by side."""
        assert self.strides is None
        assert start + count <= prod(self.shape)
        return Stored(self.file, self.position + start * self.kind.size, self.kind, (count,))


class Block(Protocol):
    """What a piece of a tensor is made of."""

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    def array(self) -> Array:
        """All elements, as a view of a mapped file."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block and where its first element stands in the whole."""

    offsets: Shape
    block: Block


@dataclass(frozen=True)
class Assembled:
    """A tensor whose blocks lie in several places."""

    kind: Kind
    shape: Shape
    pieces: Sequence[Piece] = field(repr=False)

    def read(self, start: int, count: int) -> Array:
        """As `Tensor.read`; a view where one block holds the whole range and spans all axes but the first."""
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
        """Elements at which another block begins, where blocks follow each other along the first axis."""
        if not self._by_rows:
            return []
        return sorted({piece.offsets[0] * prod(self.shape[1:]) for piece in self.pieces})


@dataclass(frozen=True, slots=True)
class Reshaped:
    """Another tensor's elements in another shape."""

    whole: Assembled
    shape: Shape

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""
        return self.whole.kind

    @property
    def cuts(self) -> list[int]:
        """As of the other tensor."""
        return self.whole.cuts

    def read(self, start: int, count: int) -> Array:
        """As `Tensor.read`."""
        return self.whole.read(start, count)


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a tensor without gaps."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def fill(out_E: Array, start: int, shape: Shape, pieces: Sequence[Piece]) -> None:
    """Copy the elements from ``start`` on of a tensor in blocks into a vector; the range is as long as the vector.

    A range is cut into a partial first row, whole rows and a partial last row, and partial rows again along the next
    axis, so that each step copies a box.
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
    """Copy what each block has of a box: ``prefix`` fixes the leading axes, ``lower`` starts the others."""
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
    """Ranges ``(start, count)`` that cover a tensor, each of at most ``limit`` elements, cut where reading is cheap.

    Cuts fall on rows, as far as rows are not longer than ``limit``, and on the boundaries of blocks.
    """
    size = size_of(tensor)
    row = prod(tensor.shape[1:]) if tensor.shape else 1
    step = limit // row * row if 0 < row <= limit else limit
    cuts = [cut for cut in getattr(tensor, "cuts", ()) if 0 < cut < size]
    for begin, end in zip([0, *cuts], [*cuts, size], strict=True):
        for start in range(begin, end, step):
            yield start, min(step, end - start)
