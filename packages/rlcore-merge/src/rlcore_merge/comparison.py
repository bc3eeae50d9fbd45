"""Compares two checkpoints of any layouts tensor by tensor, reading both range by range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rlcore.wording import counted

from rlcore_merge.checkpoint import Request
from rlcore_merge.elements import Array, to_float32
from rlcore_merge.layouts import Layouts
from rlcore_merge.tensors import Tensor, ranges, size_of
from rlcore_merge.writing import RANGE, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What differs in one tensor; nothing when ``problem`` is empty."""

    name: str
    problem: str
    dtypes: str = ""
    """Which ones they have, where they have two."""
    difference: float | None = None
    """The largest, over all elements; None where the shapes differ or one side lacks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two checkpoints side by side."""

    tensors: int
    """Compared on both sides."""
    rows: tuple[Row, ...]
    """Tensors that differ, the worst first."""
    logits: float | None = None
    """The largest difference of the logits on a prompt; None where it was not computed."""
    logits_note: str = ""
    notes: tuple[str, ...] = ()
    """What is another and was not asked to be the same."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.rows and not self.logits


def compare(
    left: str | Path,
    right: str | Path,
    *,
    base: str | Path | None = None,
    tolerance: float = 0.0,
    layouts: Layouts | None = None,
) -> Comparison:
    """Compare names, shapes and values; dtypes too, unless a tolerance says that rounding is meant.

    Args:
        left: a folder of any layout
        right: the reference, of any layout
        base: for an adapter among them
        tolerance: the largest difference of two elements that counts as equal, both taken as float32
        layouts: where layouts are looked up

    Raises:
        UserError: one of them is not whole.
    """
    layouts = layouts or Layouts()
    mine, other = (_tensors(Path(folder).expanduser(), base, layouts) for folder in (left, right))
    found = list(_rows(mine, other, tolerance))
    rows = [row for row in found if row.problem]
    rows.sort(key=lambda row: -np.inf if row.difference is None else -row.difference)
    rounded = [row for row in found if row.dtypes] if tolerance else []
    notes = []
    if rounded:
        first = rounded[0]
        notes.append(f"{counted(len(rounded), 'tensor')} of another dtype, such as {first.name}: {first.dtypes}")
    return Comparison(tensors=len(mine.keys() & other.keys()), rows=tuple(rows), notes=tuple(notes))


def _tensors(folder: Path, base: str | Path | None, layouts: Layouts) -> Mapping[str, Tensor]:
    from rlcore_merge.merging import prepare

    request = Request(base=None if base is None else Path(base).expanduser())
    return prepare(layouts.open(folder, request), request, layouts).tensors


def _rows(left: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float) -> Iterator[Row]:
    for name in [*left, *(name for name in right if name not in left)]:
        if name not in right or name not in left:
            yield Row(name=name, problem="only in the reference" if name not in left else "not in the reference")
            continue
        mine, other = left[name], right[name]
        if mine.shape != other.shape:
            yield Row(name=name, problem=f"shape {list(mine.shape)}, the reference's is {list(other.shape)}")
            continue
        worst = difference(mine, other)
        problems = []
        dtypes = ""
        if kept(mine) is not kept(other):
            dtypes = f"dtype {kept(mine).name}, the reference's is {kept(other).name}"
            if not tolerance:
                problems.append(dtypes)
        if not worst <= tolerance:
            problems.append("values")
        yield Row(name=name, problem="; ".join(problems), dtypes=dtypes, difference=worst)


def difference(left: Tensor, right: Tensor) -> float:
    """The largest absolute difference; infinite where only one side is NaN, or equal infinities do not meet."""
    worst = 0.0
    for start, count in ranges(left, RANGE):
        mine, other = left.read(start, count), right.read(start, count)
        if left.kind is right.kind and np.array_equal(_bits(mine), _bits(other)):
            continue
        if left.kind.floating and right.kind.floating:
            a, b = to_float32(mine, left.kind), to_float32(other, right.kind)
        else:
            a, b = mine.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.where(a == b, 0.0, np.abs(a - b))
        apart[np.isnan(a) & np.isnan(b)] = 0.0
        apart[np.isnan(apart)] = np.inf
        worst = max(worst, float(apart.max(initial=0.0)))
    return worst


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal bit for bit."""
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
