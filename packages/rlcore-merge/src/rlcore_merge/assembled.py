"""Tensors assembled from blocks, which may be in several files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from rlcore_merge.blocks import Piece, Shape, fill
from rlcore_merge.dtypes import Array, Kind
from rlcore_merge.tensors import Stored


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
                    return piece.block.array().reshape(-1)[start - first : start - first + count]
        out = np.empty(count, self.kind.storage)
        fill(out, start, self.shape, self.pieces)
        return out

    def leaves(self) -> Iterator[Stored]:
        """See `Tensor.leaves`."""
        for piece in self.pieces:
            yield from piece.block.leaves()

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

    def leaves(self) -> Iterator[Stored]:
        """See `Tensor.leaves`."""
        return self.whole.leaves()
