"""Boxes of a tensor: blocks at offsets, which tile the tensor, and ranges of elements read from them.

Legend: ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from rlcore_merge.dtypes import Array, Kind

if TYPE_CHECKING:
    from rlcore_merge.tensors import Stored

Shape = tuple[int, ...]

MOST_SPLITS = 8
"""Axes that may be split into parts: the cost of `tile` is exponential in their number."""


class Block(Protocol):
    """The content of a piece of a tensor."""

    @property
    def kind(self) -> Kind:
        """Kind of the elements."""

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    def array(self) -> Array:
        """All elements as a view of a mapped file."""

    def leaves(self) -> Iterable[Stored]:
        """See `rlcore_merge.tensors.Tensor.leaves`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block and the offsets of its first element in the full tensor."""

    offsets: Shape
    block: Block


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


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a contiguous tensor."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def fill(out_E: Array, start: int, shape: Shape, pieces: Sequence[Piece]) -> None:
    """Fill a vector with the elements of an assembled tensor from ``start`` on.

    A range is split into a partial first row, full rows and a partial last row. Partial rows are split again along the
    next axis, so that each step copies a box.
    """
    _fill(out_E, start, start + out_E.size, shape, (), pieces)


def _fill(out: Array, start: int, stop: int, shape: Shape, prefix: Shape, pieces: Sequence[Piece]) -> None:
    if start == stop:
        return
    axis = len(prefix)
    if axis == len(shape):
        _copy_box(out.reshape(()), prefix, (), pieces)
        return
    inner = prod(shape[axis + 1 :])
    first, head = divmod(start, inner)
    last, tail = divmod(stop, inner)
    if first == last:
        _fill(out, head, tail, shape, (*prefix, first), pieces)
        return
    done = 0
    if head:
        done = inner - head
        _fill(out[:done], head, inner, shape, (*prefix, first), pieces)
        first += 1
    if last > first:
        box = out[done : done + (last - first) * inner].reshape((last - first, *shape[axis + 1 :]))
        _copy_box(box, prefix, (first, *(0 for _ in shape[axis + 1 :])), pieces)
        done += (last - first) * inner
    if tail:
        _fill(out[done:], 0, tail, shape, (*prefix, last), pieces)


def _copy_box(box: Array, prefix: Shape, lower: Shape, pieces: Sequence[Piece]) -> None:
    """Copy a box from the blocks: ``prefix`` fixes the leading axes, ``lower`` is the start on the others."""
    for piece in pieces:
        own, lengths = piece.offsets, piece.block.shape
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
            box[tuple(into)] = piece.block.array()[tuple[Any, ...]((*inside, *taken))]
