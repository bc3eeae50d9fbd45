"""Compute the box of a tensor that one process holds from its placements on a device mesh.

For each dimension of the mesh, a placement splits the tensor along one axis (``Shard``) or replicates it
(``Replicate``). Splits of one axis by several dimensions are nested, with the first dimension outermost. The exception
is a strided split: ``_StridedShard(axis, split_factor)`` is applied inside the dimensions to its right that together
have ``split_factor`` parts. Each split is that of `torch.chunk`: parts of ``ceil(length / parts)``, the last ones
shorter or empty.
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
    """The placement of one mesh dimension: the axis that it splits or None for a replica, and the strided factor."""

    axis: int | None
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


def placements_of(records: Sequence[Record], name: str, where: str) -> list[Placement]:
    """The placements in a pickle.

    Raises:
        UserError: a placement is a pending reduction (``Partial``) or unknown.
    """
    found = []
    for record in records:
        placement_type = record.name.rpartition(".")[2]
        if placement_type == "Replicate":
            found.append(Placement(None))
        elif placement_type == "Shard":
            found.append(Placement(int(record.get("dim"))))
        elif placement_type == "_StridedShard":
            found.append(Placement(int(record.get("dim")), int(record.get("split_factor"))))
        else:
            raise UserError(
                f"{name} cannot be merged",
                found=f"the placement {placement_type}, a pending reduction over processes"
                if "Partial" in placement_type
                else f"the placement {placement_type}",
                where=where,
                fix="redistribute it to Replicate or Shard before saving",
            )
    return found


def mesh_of(record: Record, rank: int, read_ranks: Any) -> Mesh:
    """The mesh in a pickle and the coordinates of a process in it.

    Args:
        record: the record of a ``DeviceMesh`` of any torch version
        rank: rank of the process that saved the file
        read_ranks: function that reads a small tensor of integers

    Raises:
        ValueError: the process is not in the mesh.
    """
    ranks = record.get("mesh")
    if isinstance(ranks, Strided):
        table = read_ranks(ranks)
        places = [place for place in _indices(table.shape) if int(table[place]) == rank]
        if len(places) != 1:
            raise ValueError(f"rank {rank} occurs {len(places)} times in the mesh")
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
        raise ValueError("a mesh of an unknown format")
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
