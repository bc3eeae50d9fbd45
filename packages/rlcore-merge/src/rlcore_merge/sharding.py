"""Compute the box of a tensor that one process holds from its placements on a device mesh.

For each dimension of the mesh, a placement splits the tensor along one axis (``Shard``) or replicates it
(``Replicate``). Splits of one axis by several dimensions are nested, with the first dimension outermost. The exception
is a strided split: ``_StridedShard(axis, split_factor)`` is applied inside the dimensions to its right that together
have ``split_factor`` parts. Each split is that of `torch.chunk`: parts of ``ceil(length / parts)``, the last ones
shorter or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from rlcore.errors import UserError

from rlcore_merge.blocks import Shape
from rlcore_merge.dtypes import Array
from rlcore_merge.pickles import MOST_NUMBERS, Record, Strided, whole_number, whole_numbers


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
            found.append(Placement(whole_number(record.get("dim"))))
        elif placement_type == "_StridedShard":
            found.append(Placement(whole_number(record.get("dim")), whole_number(record.get("split_factor"))))
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


def mesh_of(record: Record, rank: int, read_ranks: Callable[[Strided], Array]) -> Mesh:
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
    record: Record, rank: int, axes: Sequence[tuple[Shape, Shape]], read_ranks: Callable[[Strided], Array]
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
    if not isinstance(layout, Record):
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
