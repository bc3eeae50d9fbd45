"""Lazy tensors: the location of their elements and how to read a range of them.

A model is a mapping from names to `Tensor`. Files are memory-mapped: reading a range touches only its pages, and these
do not count as anonymous memory of the process.
Legend: ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import NoReturn, Protocol

import numpy as np
from rlcore.errors import UserError

from rlcore_merge.blocks import Piece, Shape, fill, row_major
from rlcore_merge.dtypes import Array, Kind
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.records import COPY_AGAIN, Record

MOST_AXES = 32
"""Axes of a numpy array."""
MOST = 2**63 - 1
"""Bytes of a numpy array."""


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

    def leaves(self) -> Iterable[Stored]:
        """The stored tensors that this one is computed from, and copies of them in other files."""


def size_of(tensor: Tensor) -> int:
    """Number of elements."""
    return prod(tensor.shape)


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
        begin, end = (0, self.file.size) if self.record is None else (self.record.position, self.record.end)
        bytes_needed = self.span * self.kind.size
        if not bytes_needed:  # of any offset, as in torch
            object.__setattr__(self, "position", min(max(self.position, begin), end))
        elif self.position < begin or self.position + bytes_needed > end:
            self._raise_outside()

    def _raise_outside(self) -> NoReturn:
        begin, end = (0, self.file.size) if self.record is None else (self.record.position, self.record.end)
        needed = self.position + size_of(self) * self.kind.size
        if self.record is None and self.strides is None and needed > end:
            raise UserError(
                "a checkpoint file is truncated",
                found=f"{end:,} bytes, but a tensor ends at {needed:,}",
                where=str(self.file.path),
                fix=COPY_AGAIN,
            )
        strides = "" if self.strides is None else f" and strides {list(self.strides)}"
        raise UserError(
            "a checkpoint file is damaged",
            found=f"a {self.kind.torch_name} tensor of shape {list(self.shape)}{strides} at byte "
            f"{self.position - begin:,} of {end - begin:,}",
            where=str(self.file.path),
            fix=COPY_AGAIN,
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
        out = np.empty(count, self.kind.storage)
        fill(out, start, self.shape, [Piece((0,) * len(self.shape), self)])
        return out

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
