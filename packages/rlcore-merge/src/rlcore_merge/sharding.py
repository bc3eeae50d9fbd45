"""From a placement on a mesh of processes to the box of a tensor that one of them holds.

A placement says for each dimension of the mesh whether the tensor is split along one of its own axes (``Shard``) or
kept whole (``Replicate``). Splits of one axis by several dimensions are nested, the first dimension outermost, unless
one is strided: ``_StridedShard(axis, split_factor)`` is applied inside the dimensions to its right that together make
``split_factor`` parts. Each split is that of `torch.chunk`: parts of ``ceil(length / parts)``, the last ones shorter or
empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from rlcore.errors import UserError

from rlcore_merge.pickles import Record, Strided
from rlcore_merge.tensors import Shape


@dataclass(frozen=True, slots=True)
class Placement:
    """What one dimension of the mesh does: the axis that it splits, None for a copy, and a strided split's factor."""

    axis: int | None
    split_factor: int | None = None


@dataclass(frozen=True, slots=True)
class Mesh:
    """Lengths of a mesh's dimensions and the place of one process in it."""

    sizes: Shape
    coordinates: Shape


def chunk(length: int, parts: int, index: int) -> tuple[int, int]:
    """Begin and end of a part, as `torch.chunk` cuts; empty parts stand at the end."""
    step = -(-length // parts)
    return min(index * step, length), min((index + 1) * step, length)


def box(shape: Shape, placements: Sequence[Placement], mesh: Mesh) -> tuple[Shape, Shape]:
    """Offsets and lengths of what a process holds of a tensor of ``shape``.

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
    """The dimensions of the mesh that split an axis, outermost first."""
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


def placements_of(records: Sequence[Record], name: str, where: str) -> list[Placement]:
    """Placements as a pickle holds them.

    Raises:
        UserError: a sum that was never computed (``Partial``), or a placement that is not known.
    """
    found = []
    for record in records:
        word = record.name.rpartition(".")[2]
        if word == "Replicate":
            found.append(Placement(None))
        elif word == "Shard":
            found.append(Placement(int(record.get("dim"))))
        elif word == "_StridedShard":
            found.append(Placement(int(record.get("dim")), int(record.get("split_factor"))))
        else:
            raise UserError(
                f"{name} cannot be merged",
                found=f"the placement {word}: a sum over processes that was never computed"
                if "Partial" in word
                else f"the placement {word}",
                where=where,
                mend="redistribute it to Replicate or Shard before saving",
            )
    return found


def mesh_of(record: Record, rank: int, read_ranks: Any) -> Mesh:
    """The mesh of a pickle and where a process stands in it.

    Args:
        record: of a ``DeviceMesh`` of any torch version
        rank: of the process that saved the file
        read_ranks: reads a small tensor of integers in its shape

    Raises:
        ValueError: the process is not in the mesh.
    """
    ranks = record.get("mesh")
    if isinstance(ranks, Strided):
        table = read_ranks(ranks)
        places = [place for place in _indices(table.shape) if int(table[place]) == rank]
        if len(places) != 1:
            raise ValueError(f"rank {rank} is {len(places)} times in the mesh")
        return Mesh(tuple(table.shape), places[0])
    sizes, strides = _layout(record.get("_layout"))
    coordinates = record.get("_coordinate_on_dim")
    if coordinates is None:
        all_ranks = [int(value) for value in read_ranks(record.get("_rank_map")).reshape(-1)]
        if rank not in all_ranks:
            raise ValueError(f"rank {rank} is not in the mesh")
        place = all_ranks.index(rank)
        coordinates = [place // stride % size for size, stride in zip(sizes, strides, strict=True)]
    return Mesh(sizes, tuple(int(value) for value in coordinates))


def _layout(record: Any) -> tuple[Shape, Shape]:
    if not isinstance(record, Record):
        raise ValueError("a mesh of an unknown form")
    axes = record.get("axes")
    if axes is None:
        shape, stride = record.get("shape"), record.get("stride")
        shape, stride = (
            (shape if isinstance(shape, tuple) else (shape,)),
            (stride if isinstance(stride, tuple) else (stride,)),
        )
    else:
        shape, stride = [axis.get("shape") for axis in axes], [axis.get("stride") for axis in axes]
    return tuple(_product(size) for size in shape), tuple(_last(step) for step in stride)


def _product(size: Any) -> int:
    return prod(_product(inner) for inner in size) if isinstance(size, tuple | list) else int(size)


def _last(step: Any) -> int:
    return _last(step[-1]) if isinstance(step, tuple | list) else int(step)


def _indices(shape: Shape) -> list[Shape]:
    places: list[Shape] = [()]
    for length in shape:
        places = [(*place, index) for place in places for index in range(length)]
    return places
