"""Weights with a low-rank adapter applied, computed in float32 when a range is read.

Legend: ``_RO`` rows of a weight by the rest of its axes, ``_RI`` rank by inputs, ``_OR`` outputs by rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import frexp, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcore_merge.blocks import Shape
from rlcore_merge.dtypes import KINDS, Array, Kind, to_float32
from rlcore_merge.tensors import Stored, Tensor, size_of

Float32 = npt.NDArray[np.float32]


def vector_of(tensor: Tensor) -> Float32:
    """All elements of a small tensor as a float32 vector."""
    return to_float32(tensor.read(0, size_of(tensor)), tensor.kind)


@dataclass(frozen=True, slots=True)
class Delta:
    """The product that an adapter adds to a weight: ``scale · B · A``, transposed for (input, output) weights."""

    down: Tensor
    """A: rank by inputs."""
    up: Tensor
    """B: outputs by rank."""
    scale: float
    transposed: bool
    magnitude: Tensor | None = None
    """DoRA's m, one value per output."""

    def is_zero(self) -> bool:
        """Whether a factor is all zeros, as in an untrained adapter."""
        return not self.scale or not all(_any_nonzero(factor) for factor in (self.up, self.down))

    def is_finite(self) -> bool:
        """Whether all factors are free of infinities and NaN."""
        return all(_all_finite(factor) for factor in self.factors())

    def factors(self) -> list[Tensor]:
        """The tensors of the adapter."""
        return [self.down, self.up, *([self.magnitude] if self.magnitude is not None else [])]

    def rows(self, begin: int, end: int) -> Float32:
        """Rows of the scaled product, in the orientation of the weight."""
        rank, scale = self.down.shape[0], np.float32(self.scale)
        inputs = size_of(self.down) // rank
        down_RI = vector_of(self.down).reshape(rank, inputs)
        product: Float32
        if self.transposed:
            up_OR = vector_of(self.up).reshape(-1, rank)
            product = np.ascontiguousarray(down_RI[:, begin:end].T) @ up_OR.T
        else:
            part_OR = to_float32(self.up.read(begin * rank, (end - begin) * rank), self.up.kind).reshape(-1, rank)
            if frexp(scale)[0] == 0.5:  # scaling by a power of two is exact: scale the smaller factor
                part_OR, scale = part_OR * scale, np.float32(1)
            product = part_OR @ down_RI
        if scale != 1:
            product *= scale
        return product


def _any_nonzero(tensor: Tensor) -> bool:
    return any(bool(np.any(part)) for part in _parts(tensor))


def _all_finite(tensor: Tensor) -> bool:
    return all(bool(np.isfinite(part).all()) for part in _parts(tensor))


def _parts(tensor: Tensor) -> Iterator[Float32]:
    size = size_of(tensor)
    for start in range(0, size, 1 << 20):
        yield to_float32(tensor.read(start, min(1 << 20, size - start)), tensor.kind)


@dataclass(frozen=True, slots=True)
class LowRank:
    """A weight with an adapter applied. It is read as float32 and written in the kind of the weight."""

    weight: Tensor
    delta: Delta

    @property
    def kind(self) -> Kind:
        """Always float32."""
        return KINDS["F32"]

    @property
    def output_kind(self) -> Kind:
        """The kind in which the tensor is written if the dtype is kept."""
        return getattr(self.weight, "output_kind", self.weight.kind)

    @property
    def shape(self) -> Shape:
        """Shape of the weight."""
        return self.weight.shape

    def read(self, start: int, count: int) -> Array:
        """See `rlcore_merge.tensors.Tensor.read`. Full rows are computed."""
        row = prod(self.shape[1:])
        begin, end = start // row, -(-(start + count) // row)
        weight_RO = to_float32(self.weight.read(begin * row, (end - begin) * row), self.weight.kind).reshape(-1, row)
        changed_RO = self.delta.rows(begin, end)
        changed_RO += weight_RO
        if self.delta.magnitude is not None:
            norms = np.linalg.norm(changed_RO, axis=1)
            changed_RO *= (vector_of(self.delta.magnitude)[begin:end] / norms)[:, None]
        flat: npt.NDArray[Any] = changed_RO.reshape(-1)
        return flat[start - begin * row : start - begin * row + count]

    def leaves(self) -> Iterator[Stored]:
        """See `rlcore_merge.tensors.Tensor.leaves`."""
        for tensor in (self.weight, *self.delta.factors()):
            yield from tensor.leaves()


@dataclass(frozen=True, slots=True)
class Shifted:
    """A bias with the scaled bias of an adapter added."""

    bias: Tensor
    difference: Tensor
    scale: float

    @property
    def kind(self) -> Kind:
        """Always float32."""
        return KINDS["F32"]

    @property
    def output_kind(self) -> Kind:
        """The kind in which the tensor is written if the dtype is kept."""
        return self.bias.kind

    @property
    def shape(self) -> Shape:
        """Shape of the bias."""
        return self.bias.shape

    def read(self, start: int, count: int) -> Array:
        """See `rlcore_merge.tensors.Tensor.read`."""
        bias = to_float32(self.bias.read(start, count), self.bias.kind)
        difference = to_float32(self.difference.read(start, count), self.difference.kind)
        total: npt.NDArray[Any] = bias + difference * np.float32(self.scale)
        return total

    def leaves(self) -> Iterator[Stored]:
        """See `rlcore_merge.tensors.Tensor.leaves`."""
        yield from self.bias.leaves()
        yield from self.difference.leaves()
