"""Compare two checkpoints of any layout tensor by tensor. Both are read range by range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rlcore.console.wording import counted

from rlcore_merge.checkpoint import Request
from rlcore_merge.dtypes import Kind, narrower
from rlcore_merge.layouts import Layouts
from rlcore_merge.merging import Ready, prepare
from rlcore_merge.other_files import read_config
from rlcore_merge.published_names import published
from rlcore_merge.tensor_difference import difference
from rlcore_merge.tensors import Tensor
from rlcore_merge.writing import output_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The comparison of one tensor. The tensors are equal if ``problem`` is empty."""

    name: str
    problem: str
    dtypes: str = ""
    """A description of the two dtypes, if they differ."""
    rounded_to: Kind | None = None
    """The kind in which floating-point tensors of different dtypes were compared."""
    difference: float | None = None
    """The largest absolute difference; None if the shapes differ or one side lacks the tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison."""

    tensors: int
    """Number of tensors that both checkpoints have."""
    rows: tuple[Row, ...]
    """Tensors that differ, largest difference first."""
    logits: float | None = None
    """The largest difference of the logits on a prompt; None if it was not computed."""
    logits_note: str = ""
    notes: tuple[str, ...] = ()
    """Accepted differences."""
    rounded_to: Kind | None = None
    """The kind in which tensors of different dtypes were compared; None if no dtypes differ."""

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
    """Compare names, shapes and values.

    The names may be those of the modules or the published ones. If dtypes differ, both sides are rounded to the
    narrower one, and the result contains a note.

    Args:
        left: a folder of any layout
        right: the reference, of any layout
        base: base model of an adapter
        tolerance: the largest difference of two elements, as float32, that counts as equal
        layouts: known layouts

    Raises:
        UserError: one of the checkpoints is incomplete.
    """
    layouts = layouts or Layouts()
    sides = [_ready(Path(folder).expanduser(), base, layouts) for folder in (left, right)]
    config = read_config(sides[0].companions) or read_config(sides[1].companions) or {}
    mine, other = (_published(side.tensors, config) for side in sides)
    found = list(_rows(mine, other, tolerance))
    rows = [row for row in found if row.problem]
    rows.sort(key=lambda row: -np.inf if row.difference is None else -row.difference)
    rounded = [row for row in found if row.rounded_to is not None]
    notes = []
    if rounded:
        first = rounded[0]
        notes.append(f"{counted(len(rounded), 'tensor')} with a different dtype, such as {first.name}: {first.dtypes}")
    return Comparison(
        tensors=len(mine.keys() & other.keys()),
        rows=tuple(rows),
        notes=tuple(notes),
        rounded_to=rounded[0].rounded_to if rounded else None,
    )


def _ready(folder: Path, base: str | Path | None, layouts: Layouts) -> Ready:
    request = Request(base=None if base is None else Path(base).expanduser())
    return prepare(layouts.open(folder, request), request, layouts)


def _published(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    names = published(tensors, config)
    return {names[name]: tensor for name, tensor in tensors.items()}


def _rows(left: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float) -> Iterator[Row]:
    for name in [*left, *(name for name in right if name not in left)]:
        if name not in right or name not in left:
            yield Row(name=name, problem="only in the reference" if name not in left else "not in the reference")
            continue
        mine, other = left[name], right[name]
        if mine.shape != other.shape:
            yield Row(name=name, problem=f"shape {list(mine.shape)}, the reference's is {list(other.shape)}")
            continue
        kinds = output_kind(mine), output_kind(other)
        common = narrower(*kinds)
        worst = difference(mine, other, common)
        problems = []
        dtypes = ""
        if kinds[0] is not kinds[1]:
            dtypes = f"dtype {kinds[0].name}, the reference's is {kinds[1].name}"
            if common is None:
                problems.append(dtypes)
            else:
                dtypes += f"; compared as {common.name}"
        if not worst <= tolerance:
            problems.append("values")
        yield Row(
            name=name,
            problem="; ".join(problems),
            dtypes=dtypes,
            difference=worst,
            rounded_to=common if dtypes else None,
        )
