"""Keys and values of the sequences that are being decoded, one row each.

Axes: L layers, R rows, H key heads, S positions, E head width.
"""

from __future__ import annotations

from torch import Tensor

from rlcore_rollout.engines.torch.weights import Weights

POSITIONS = 64
"""Capacity grows by multiples of this many positions."""

Stretch = tuple[Tensor, Tensor]
"""Keys and values of one sequence, each [L, H, n, E]."""


class RowCache:
    """Preallocated keys and values [L, R, H, S, E]; S grows when a sequence needs more.

    What lies behind a row's own length is finite and never read.
    """

    def __init__(self, weights: Weights, rows: int):
        self._like = weights.embedding
        shape = weights.shape
        self._dimensions = (shape.layers, rows, shape.key_heads, shape.head_width)
        self.keys, self.values = self._empty(POSITIONS), self._empty(POSITIONS)

    def _empty(self, positions: int) -> Tensor:
        layers, rows, heads, width = self._dimensions
        return self._like.new_zeros((layers, rows, heads, positions, width))

    @property
    def capacity(self) -> int:
        """Positions that a row has room for."""
        return self.keys.shape[3]

    def reserve(self, positions: int) -> None:
        """Make room for this many positions in every row."""
        if positions <= self.capacity:
            return
        wanted = max(positions, min(2 * self.capacity, self.capacity + 512))
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            new = self._empty(-(-wanted // POSITIONS) * POSITIONS)
            new[:, :, :, : old.shape[3]] = old
            setattr(self, name, new)

    def take(self, row: int, length: int) -> Stretch:
        """A copy of a row's first positions."""
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
