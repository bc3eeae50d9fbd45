"""The key-value cache, with one row per sequence or prompt.

Axes: L layers, R rows, H key heads, S positions, E head width.
"""

from __future__ import annotations

from torch import Tensor

from rlcore_rollout.engines.torch.weights import Weights

POSITIONS = 64
"""Capacity grows in multiples of this many positions."""

Stretch = tuple[Tensor, Tensor]
"""Keys and values of one row, each [L, H, n, E]."""


class RowCache:
    """Keys and values [L, R, H, S, E]. R and S grow on demand, S from 0, so that an unused cache takes no memory.

    Values beyond a row's own length are finite and never read.
    """

    def __init__(self, weights: Weights, rows: int):
        self._like = weights.embedding
        self._shape = weights.shape
        self.keys, self.values = self._empty(rows, 0), self._empty(rows, 0)

    def _empty(self, rows: int, positions: int) -> Tensor:
        shape = self._shape
        return self._like.new_zeros((shape.layers, rows, shape.key_heads, positions, shape.head_width))

    def _grown(self, old: Tensor, rows: int, positions: int) -> Tensor:
        new = self._empty(rows, positions)
        new[:, : old.shape[1], :, : old.shape[3]] = old
        return new

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Number of positions that fit in a row."""
        return self.keys.shape[3]

    def reserve(self, positions: int, rows: int = 0) -> None:
        """Make room for this many positions in every row, and for this many rows."""
        rows = self.rows if rows <= self.rows else max(rows, self.rows + self.rows // 2)
        if positions > self.capacity:
            wanted = max(positions, min(2 * self.capacity, self.capacity + 512))
            positions = -(-wanted // POSITIONS) * POSITIONS
        else:
            positions = self.capacity
        if (rows, positions) == (self.rows, self.capacity):
            return
        self.keys = self._grown(self.keys, rows, positions)
        self.values = self._grown(self.values, rows, positions)

    def take(self, row: int, length: int) -> Stretch:
        """Return a copy of a row's first positions."""
        return self.keys[:, row, :, :length].clone(), self.values[:, row, :, :length].clone()

    def put(self, row: int, stretch: Stretch) -> None:
        """Fill a row from a copy."""
        keys, values = stretch
        length = keys.shape[2]
        self.reserve(length)
        self.keys[:, row, :, :length] = keys
        self.values[:, row, :, :length] = values

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first positions to another row."""
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]
