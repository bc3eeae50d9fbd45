"""Weights in the object store of a Ray cluster.

The tensors are packed into a few arrays. Every node receives each array once, and the processes of a node read it in
shared memory without a copy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rlcore.contracts import NamedTensor, WeightSource
from rlcore.errors import EngineError

ARRAY_BYTES = 1 << 28
"""Bytes of tensors in an array, unless a single one is larger. The sender holds one array more than the store."""
ALIGNED = 64
"""Each tensor begins at a multiple, as in memory of its own: matrix products read whole cache lines."""

Place = tuple[str, str, tuple[int, ...], int, int]
"""A tensor in the arrays: its name, dtype and shape, the number of its array, and its offset in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTensors:
    """Tensors in arrays of bytes."""

    places: tuple[Place, ...]
    arrays: tuple[Any, ...]
    """A reference to each array in the object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """One version of the weights of a policy, for `ReceivedWeights`."""

    version: int
    adapter: Mapping[str, Any] | None
    tensors: Mapping[bool, PackedTensors]
    """The tensors by the argument ``adapter_only`` of `WeightSource.weights`. Empty if they are those of the folder."""
    streamed: bool
    """Whether the trainer has the weights, and not the folder."""


def pack(source: WeightSource, put: Callable[[Any], Any], *, wanted: Iterable[bool]) -> PackedWeights:
    """Copy weights into the object store.

    Args:
        source: the weights
        put: stores an array of bytes, and returns a reference to it, as ``ray.put``
        wanted: values of ``adapter_only`` with which engines read the weights
    """
    packed = dict[bool, PackedTensors]()
    for adapter_only in wanted:
        if (source.adapter is not None or not adapter_only) and (
            weights := source.weights(adapter_only=adapter_only)
        ) is not None:
            packed[adapter_only] = _packed(weights, put)
    return PackedWeights(
        version=source.version, adapter=source.adapter, tensors=packed, streamed=source.weights() is not None
    )


def _packed(weights: Iterable[NamedTensor], put: Callable[[Any], Any]) -> PackedTensors:
    places, arrays, parts, size = list[Place](), list[Any](), list[np.ndarray[Any, Any]](), 0

    def store() -> None:
        nonlocal size
        joined = np.zeros(size, dtype=np.uint8)
        offset = 0
        for part in parts:
            joined[offset : offset + len(part)] = part
            offset += _padded(len(part))
        arrays.append(put(joined))
        parts.clear()
        size = 0

    for one in weights:
        values = one.tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        if parts and size + len(values) > ARRAY_BYTES:
            store()
        places.append((one.name, one.dtype, one.shape, len(arrays), size))
        parts.append(values)
        size += _padded(len(values))
    if parts:
        store()
    return PackedTensors(places=tuple(places), arrays=tuple(arrays))


def _padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


@dataclass(kw_only=True)
class ReceivedWeights:
    """A `WeightSource` in another process than the trainer.

    Attributes:
        packed: the weights
        folder: the model folder in this process's machine
        device: where the tensors are used
        get: returns the array of a reference, as ``ray.get``
        read: the values of ``adapter_only`` with which the engine has read weights
    """

    packed: PackedWeights
    folder: Path | None
    device: torch.device
    get: Callable[[Any], Any]
    read: set[bool] = field(default_factory=set)

    @property
    def version(self) -> int:
        """See `rlcore.contracts.WeightSource`."""
        return self.packed.version

    @property
    def adapter(self) -> Mapping[str, Any] | None:
        """See `rlcore.contracts.WeightSource`."""
        return self.packed.adapter

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor] | None:
        """Yield the tensors; None if they are those in `folder`. On a CPU, they are read in shared memory."""
        return self._tensors(adapter_only) if self.packed.streamed else None

    def _tensors(self, adapter_only: bool) -> Iterator[NamedTensor]:
        self.read.add(adapter_only)
        if (packed := self.packed.tensors.get(adapter_only)) is None:
            raise EngineError("the engine reads weights that were not sent to its process")
        number, array = -1, None
        for name, dtype, shape, index, offset in packed.places:
            if index != number:
                number, array = index, self.get(packed.arrays[index])
            kind: torch.dtype = getattr(torch, dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # shared memory is read-only, and an engine only reads weights
                if 0 in shape:
                    tensor = torch.empty(shape, dtype=kind)
                else:
                    count = int(np.prod(shape, dtype=np.int64))
                    tensor = torch.frombuffer(array, dtype=kind, count=count, offset=offset).reshape(shape)
            yield NamedTensor(name, dtype, shape, tensor.to(self.device))


__all__ = ["PackedWeights", "ReceivedWeights", "pack"]
