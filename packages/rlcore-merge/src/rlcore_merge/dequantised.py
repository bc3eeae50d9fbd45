"""Tensors of GGUF files, dequantised by the gguf library range by range.

Legend: ``_RB`` bytes of the stored rows, ``_RC`` elements of rows, ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt

from rlcore_merge.blocks import Shape
from rlcore_merge.dtypes import KINDS, Array, Kind
from rlcore_merge.tensors import Stored


@dataclass(frozen=True, slots=True)
class Dequantised:
    """A tensor in float32, computed from rows of blocks as it is read."""

    stored: Stored
    """The bytes of the rows, as a matrix."""
    type: gguf.GGMLQuantizationType
    shape: Shape
    order_R: npt.NDArray[np.int64] | None = None
    """The stored row of each row; None if they are stored in order."""
    offset: float = 0.0
    """Subtracted from each element."""

    @property
    def kind(self) -> Kind:
        """See `Tensor.kind`."""
        return KINDS["F32"]

    def leaves(self) -> Iterable[Stored]:
        """See `Tensor.leaves`."""
        return (self.stored,)

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`. Dequantises the rows that the range touches."""
        width = self.shape[-1]
        first, end = start // width, -(-(start + count) // width)
        stored_RB = self.stored.array()
        rows_RB = stored_RB[first:end] if self.order_R is None else stored_RB[self.order_R[first:end]]
        with np.errstate(all="ignore"):  # scales of damaged blocks may be infinite or NaN
            values_RC = gguf.dequantize(np.ascontiguousarray(rows_RB), self.type)
            if self.offset:
                values_RC = values_RC - np.float32(self.offset)
        values_E: Array = values_RC.reshape(-1)[start - first * width :][:count]
        return values_E
