"""The key-value cache, with one row per sequence or prompt.

Axes: L layers, R rows, H key heads, S positions, E head width.

Keys are stored transposed, because the product of queries and keys then reads both in order. With bfloat16 on a CPU,
the product with keys [S, E] takes four times as long, since oneDNN copies them first.
"""

from __future__ import annotations

from torch import Tensor

from rlcore_rollout.engines.torch.weights import Weights

POSITIONS = 64
"""Capacity grows in multiples of this many positions."""

Stretch = tuple[Tensor, Tensor]
"""Keys [L, H, E, n] and values [L, H, n, E] of n positions of a row."""


class RowCache:
    """Keys [L, R, H, E, S] and values [L, R, H, S, E]. R and S grow on demand, S from 0, so an unused cache is empty.

    Values beyond a row's own length are finite and never read.
    """

    def __init__(self, weights: Weights, rows: int):
        self._like = weights.embedding.new_empty(0)  # not the embedding, which would be kept after an update
        self._shape = weights.shape
        self.keys, self.values = self._no_keys(rows, 0), self._no_values(rows, 0)

    def _no_keys(self, rows: int, positions: int) -> Tensor:
        shape = self._shape
        return self._like.new_zeros((shape.layers, rows, shape.key_heads, shape.head_width, positions))

    def _no_values(self, rows: int, positions: int) -> Tensor:
        shape = self._shape
        return self._like.new_zeros((shape.layers, rows, shape.key_heads, positions, shape.head_width))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Number of positions that fit in a row."""
        return self.keys.shape[4]

    def reserve(self, positions: int, rows: int = 0) -> None:
        """Make room for this many positions in every row, and for this many rows."""
        rows = self.rows if rows <= self.rows else max(rows, self.rows + self.rows // 2)
        if positions > self.capacity:
            wanted = max(positions, min(2 * self.capacity, self.capacity + 512))
            positions = -(-wanted // POSITIONS) * POSITIONS
        else:
            positions = self.capacity
        before, filled = self.rows, self.capacity
        if (rows, positions) == (before, filled):
            return
        keys = self._no_keys(rows, positions)  # one after the other, so that less memory is in use at once
        keys[:, :before, :, :, :filled] = self.keys
        self.keys = keys
        values = self._no_values(rows, positions)
        values[:, :before, :, :filled] = self.values
        self.values = values

    def write(self, layer: int, rows_N: Tensor, places_N: Tensor, keys_NHE: Tensor, values_NHE: Tensor) -> None:
        """Store the keys and values of N positions."""
        self.keys[layer][rows_N, :, :, places_N] = keys_NHE
        self.values[layer][rows_N, :, places_N] = values_NHE

    def take(self, row: int, start: int, end: int) -> Stretch:
        """Return a copy of positions of a row."""
        return self.keys[:, row, :, :, start:end].clone(), self.values[:, row, :, start:end].clone()

    def put(self, row: int, stretch: Stretch, start: int = 0) -> None:
        """Fill a row with positions from a start on."""
        keys, values = stretch
        end = start + values.shape[2]
        self.reserve(end)
        self.keys[:, row, :, :, start:end] = keys
        self.values[:, row, :, start:end] = values

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first positions to another row."""
        self.keys[:, target, :, :, :length] = self.keys[:, source, :, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]
