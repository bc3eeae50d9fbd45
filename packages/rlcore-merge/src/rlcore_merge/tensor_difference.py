"""Differences between two tensors, read range by range."""

from __future__ import annotations

import numpy as np

from rlcore_merge.dtypes import Array, Kind, convert, to_float32
from rlcore_merge.tensors import Tensor, ranges, size_of
from rlcore_merge.writing import RANGE


def difference(left: Tensor, right: Tensor, kind: Kind | None = None) -> float:
    """The largest absolute difference; infinite if a NaN or an infinity is on one side only.

    Both sides are rounded to ``kind`` first, unless it is None.
    """
    worst = 0.0
    for start, count in ranges(left, RANGE):
        mine, other = left.read(start, count), right.read(start, count)
        if kind is not None:
            mine, other = convert(mine, left.kind, kind), convert(other, right.kind, kind)
        if (kind is not None or left.kind is right.kind) and np.array_equal(_bits(mine), _bits(other)):
            continue
        if kind is not None and kind.name != "F64":
            a, b = to_float32(mine, kind), to_float32(other, kind)
        else:
            a, b = mine.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.where(a == b, 0.0, np.abs(a - b))
        apart[np.isnan(a) & np.isnan(b)] = 0.0
        apart[np.isnan(apart)] = np.inf
        worst = max(worst, float(apart.max(initial=0.0)))
    return worst


def identical(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are bitwise equal."""
    if left.kind is not right.kind or left.shape != right.shape:
        return False
    if left is right:
        return True
    return all(
        np.array_equal(_bits(left.read(start, count)), _bits(right.read(start, count)))
        for start, count in ranges(left, RANGE)
        if size_of(left)
    )


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8)
