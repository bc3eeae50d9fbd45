"""Parts of tensors: boxes at offsets, tensors assembled from them, and the box that a process holds.

Boxes tile a tensor if they cover each element exactly once. The box of a process follows from its placements on a
device mesh. For each dimension of the mesh, a placement splits the tensor along one axis (``Shard``) or replicates it
(``Replicate``). Splits of one axis by several dimensions are nested, with the first dimension outermost. The exception
is a strided split: ``_StridedShard(axis, split_factor)`` is applied inside the dimensions to its right that together
have ``split_factor`` parts. Each split is that of `torch.chunk`: parts of ``ceil(length / parts)``, the last ones
shorter or empty.
Legend: ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
from rlcore.errors import UserError

from rlcore_merge.sources.pickles import MOST_NUMBERS, Object, Strided, whole_number, whole_numbers
from rlcore_merge.tensors import Array, Kind, Shape, Stored

MOST_SPLITS = 8
"""Axes that may be split into parts: the cost of `tile` is exponential in their number."""
_PLACEMENTS = {"Replicate": (), "Shard": ("dim",), "_StridedShard": ("dim", "split_factor")}
"""The numbers of each placement of torch."""


@dataclass(frozen=True)
class Piece:
    """A box of a tensor: its offsets, its lengths, and the function that locates its elements at the first read."""

    offsets: Shape
    shape: Shape
    locate: Callable[[], Stored] = field(repr=False)

    @classmethod
    def of(cls, offsets: Shape, stored: Stored) -> Piece:
        """A piece with a known location."""
        return cls(offsets, stored.shape, lambda: stored)

    @cached_property
    def stored(self) -> Stored:
        """The elements of the box."""
        return self.locate()


def tile(shape: Shape, boxes: Iterable[tuple[Shape, Shape]]) -> bool:
    """Whether boxes, given by offsets and lengths, cover every element of a tensor exactly once.

    A box is the sum of its corners' orthants with alternating signs. This representation is unique, so boxes tile the
    tensor if and only if their corners cancel except for those of the tensor. The cost is linear in their number.
    """
    boxes = list(boxes)
    if any(len(offsets) != len(shape) or len(lengths) != len(shape) for offsets, lengths in boxes):
        return False
    if any(number < 0 for box in boxes for part in box for number in part):
        return False
    if not prod(shape):
        return True
    split = [
        axis
        for axis, length in enumerate(shape)
        if any((offsets[axis], lengths[axis]) != (0, length) for offsets, lengths in boxes)
    ]
    if len(split) > MOST_SPLITS:
        return False
    signs: Counter[Shape] = Counter()
    for (offsets, lengths), sign in [*((box, 1) for box in boxes), (((0,) * len(shape), shape), -1)]:
        for ends in product((0, 1), repeat=len(split)):
            corner = tuple(offsets[axis] + end * lengths[axis] for axis, end in zip(split, ends, strict=True))
            signs[corner] += -sign if sum(ends) % 2 else sign
    return not any(signs.values())


def fill(out_E: Array, start: int, shape: Shape, pieces: Sequence[Piece], prefix: Shape = ()) -> None:
    """Fill a vector with the elements of an assembled tensor from ``start`` on.

    A range is split into a partial first row, full rows and a partial last row. Partial rows are split again along the
    next axis, so that each step copies a box. ``prefix`` fixes the leading axes.
    """
    stop, axis = start + out_E.size, len(prefix)
    if start == stop:
        return
    if axis == len(shape):
        _copy_box(out_E.reshape(()), prefix, (), pieces)
        return
    inner = prod(shape[axis + 1 :])
    first, head = divmod(start, inner)
    last, tail = divmod(stop, inner)
    if first == last:
        fill(out_E, head, shape, pieces, (*prefix, first))
        return
    done = 0
    if head:
        done = inner - head
        fill(out_E[:done], head, shape, pieces, (*prefix, first))
        first += 1
    if last > first:
        box = out_E[done : done + (last - first) * inner].reshape((last - first, *shape[axis + 1 :]))
        _copy_box(box, prefix, (first, *(0 for _ in shape[axis + 1 :])), pieces)
        done += (last - first) * inner
    if tail:
        fill(out_E[done:], 0, shape, pieces, (*prefix, last))


def _copy_box(box: Array, prefix: Shape, lower: Shape, pieces: Sequence[Piece]) -> None:
    """Copy a box from the blocks: ``prefix`` fixes the leading axes, ``lower`` is the start on the others."""
    for piece in pieces:
        own, lengths = piece.offsets, piece.shape
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
            box[tuple(into)] = piece.stored.array()[tuple[Any, ...]((*inside, *taken))]


@dataclass(frozen=True)
class Assembled:
    """A tensor assembled from several pieces."""

    kind: Kind
    shape: Shape
    pieces: Sequence[Piece] = field(repr=False)
    tiled: Shape | None = None
    """The shape that the pieces tile, if the elements are stored in another shape."""

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`. A view if one piece contains the range and spans all axes but the first."""
        if self._row is not None:
            for piece in self.pieces:
                first = piece.offsets[0] * self._row
                if first <= start and start + count <= first + prod(piece.shape):
                    return piece.stored.array().reshape(-1)[start - first : start - first + count]
        out = np.empty(count, self.kind.storage)
        fill(out, start, self._tiled, self.pieces)
        return out

    def leaves(self) -> Iterator[Stored]:
        """See `Tensor.leaves`."""
        for piece in self.pieces:
            yield from piece.stored.leaves()

    @property
    def _tiled(self) -> Shape:
        return self.shape if self.tiled is None else self.tiled

    @cached_property
    def _row(self) -> int | None:
        """Elements of a row, if the tensor is split along the first axis only."""
        inner = self._tiled[1:]
        return prod(inner) if self._tiled and all(piece.shape[1:] == inner for piece in self.pieces) else None

    @property
    def cuts(self) -> list[int]:
        """Positions at which a piece begins, if the tensor is split along the first axis only."""
        return [] if self._row is None else sorted({piece.offsets[0] * self._row for piece in self.pieces})


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of one mesh dimension: the axis that it splits or None for a replica, and the strided factor."""

    axis: int | None = None
    split_factor: int | None = None


@dataclass(frozen=True, slots=True)
class Mesh:
    """Sizes of the dimensions of a mesh and the coordinates of one process."""

    sizes: Shape
    coordinates: Shape


def chunk(length: int, parts: int, index: int) -> tuple[int, int]:
    """Begin and end of a part, as in `torch.chunk`. Empty parts come last."""
    step = -(-length // parts)
    return min(index * step, length), min((index + 1) * step, length)


def box(shape: Shape, placements: Sequence[Placement], mesh: Mesh) -> tuple[Shape, Shape]:
    """Offsets and lengths of the part of a tensor of ``shape`` that a process holds.

    Raises:
        ValueError: the placements do not fit the mesh or the shape.
    """
    if len(placements) != len(mesh.sizes):
        raise ValueError(f"{len(placements)} placements on a mesh of {len(mesh.sizes)} dimensions")
    begins, lengths = [0] * len(shape), list(shape)
    for axis in {placement.axis for placement in placements if placement.axis is not None}:
        if not 0 <= axis < len(shape):
            raise ValueError(f"a split of axis {axis} of a tensor of shape {list(shape)}")
        for dimension in _order(axis, placements, mesh.sizes):
            begin, end = chunk(lengths[axis], mesh.sizes[dimension], mesh.coordinates[dimension])
            begins[axis] += begin
            lengths[axis] = end - begin
    return tuple(begins), tuple(lengths)


def _order(axis: int, placements: Sequence[Placement], sizes: Shape) -> list[int]:
    """The mesh dimensions that split an axis, outermost first."""
    order: list[int] = []
    for dimension in reversed(range(len(placements))):
        placement = placements[dimension]
        if placement.axis != axis:
            continue
        if placement.split_factor is None:
            order.insert(0, dimension)
            continue
        inside = next(
            (k for k in range(len(order) + 1) if prod(sizes[d] for d in order[:k]) == placement.split_factor), None
        )
        if inside is None:
            raise ValueError(f"a strided split with the factor {placement.split_factor} on a mesh of {list(sizes)}")
        order.insert(inside, dimension)
    return order


def placements_of(records: Sequence[Object], name: str, where: str) -> list[Placement]:
    """The placements in a pickle. Raises `UserError` if a placement is a pending reduction (``Partial``) or unknown."""
    found = []
    for record in records:
        placement = record.name.rpartition(".")[2]
        if placement not in _PLACEMENTS:
            pending = ", a pending reduction over processes" if "Partial" in placement else ""
            raise UserError(
                f"{name} cannot be merged",
                found=f"the placement {placement}{pending}",
                where=where,
                fix="redistribute it to Replicate or Shard before saving",
            )
        found.append(Placement(*(whole_number(record.get(key)) for key in _PLACEMENTS[placement])))
    return found


def mesh_of(record: Object, rank: int, read_ranks: Callable[[Strided], Array]) -> Mesh:
    """The mesh in a pickle and the coordinates of a process in it.

    Args:
        record: the object of a ``DeviceMesh`` of any torch version
        rank: rank of the process that saved the file
        read_ranks: function that reads a small tensor of integers

    Raises:
        ValueError: the process is not in the mesh.
    """
    ranks = record.get("mesh")
    if isinstance(ranks, Strided):
        table = read_ranks(ranks)
        places = np.argwhere(table == rank).tolist()
        if len(places) != 1:
            raise ValueError(f"rank {rank} occurs {len(places)} times in the mesh")
        return Mesh(tuple(table.shape), tuple(places[0]))
    axes = _axes(record.get("_layout"))
    sizes = tuple(prod(lengths) for lengths, _ in axes)
    recorded = record.get("_coordinate_on_dim")
    coordinates = whole_numbers(recorded) if recorded is not None else _coordinates(record, rank, axes, read_ranks)
    if len(coordinates) != len(sizes) or any(not at < size for at, size in zip(coordinates, sizes, strict=True)):
        raise ValueError(f"the process {list(coordinates)} is not in a mesh of {list(sizes)}")
    return Mesh(sizes, coordinates)


def _coordinates(
    record: Object, rank: int, axes: Sequence[tuple[Shape, Shape]], read_ranks: Callable[[Strided], Array]
) -> Shape:
    all_ranks = read_ranks(record.get("_rank_map")).reshape(-1).tolist()
    if rank not in all_ranks:
        raise ValueError(f"rank {rank} is not in the mesh")
    place = all_ranks.index(rank)
    found = []
    for lengths, strides in axes:
        coordinate = 0
        for length, stride in zip(lengths, strides, strict=True):
            coordinate = coordinate * length + place // stride % length
        found.append(coordinate)
    return tuple(found)


def _axes(layout: Any) -> list[tuple[Shape, Shape]]:
    """Lengths and strides of the parts of each dimension, outermost first. A dimension of size 1 has no parts."""
    if not isinstance(layout, Object):
        raise ValueError("a mesh of an unknown format")
    axes = layout.get("axes")
    if axes is not None:
        pairs = [(axis.get("shape"), axis.get("stride")) for axis in axes]
    else:
        shape, stride = layout.get("shape"), layout.get("stride")
        pairs = list(zip(shape, stride, strict=True)) if isinstance(shape, tuple) else [(shape, stride)]
    return [(whole_numbers(_flat(shape)), whole_numbers(_flat(stride))) for shape, stride in pairs]


def _flat(nested: Any) -> list[Any]:
    return list(islice(_each(nested), MOST_NUMBERS + 1))


def _each(nested: Any) -> Iterator[Any]:
    if isinstance(nested, tuple | list):
        for part in nested:
            yield from _each(part)
    else:
        yield nested
