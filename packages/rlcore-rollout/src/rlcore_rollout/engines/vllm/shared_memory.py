"""Model tensors in a memory-mapped file shared with another process on this machine. Unlinked once mapped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypedDict

import torch
from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError
from torch import Tensor

ALIGNMENT = 64
"""Alignment of each tensor in bytes."""
SHARED_MEMORY = Path("/dev/shm")


class Place(TypedDict):
    """The location of a tensor, as plain values that can be sent to the other process."""

    name: str
    dtype: str
    shape: list[int]
    offset: int


class Segment:
    """The writer's side, created for the tensors of one model. `write` accepts later values of the same shapes."""

    def __init__(self, tensors: Iterable[NamedTensor]) -> None:
        self.places: list[Place] = []
        size = 0
        for one in tensors:
            self.places.append(Place(name=one.name, dtype=one.dtype, shape=list(one.shape), offset=size))
            size += -(-one.tensor.nbytes // ALIGNMENT) * ALIGNMENT
        self.size = max(size, ALIGNMENT)
        descriptor, name = tempfile.mkstemp(prefix="rlcore-weights-", dir=_folder(self.size))
        self.path = Path(name)
        try:
            os.posix_fallocate(descriptor, 0, self.size)  # a full disk raises here instead of causing a bus error later
        except OSError as error:
            self.unlink()
            raise EngineError(f"no room for {self.size} bytes of weights in {self.path.parent}: {error}") from error
        finally:
            os.close(descriptor)
        self._views = views(self.path, self.places, self.size)

    @torch.no_grad()
    def write(self, tensors: Iterable[NamedTensor]) -> None:
        """Copy the current values."""
        for place, one in zip_longest(self.places, tensors):
            if place is None or one is None or (one.name, one.dtype, list(one.shape)) != _layout(place):
                raise EngineError("the tensors of the model differ from those at the start of the engine")
            self._views[one.name].copy_(one.tensor)

    def unlink(self) -> None:
        """Unlink the file. Processes that have mapped it keep it, and nothing is left when they end."""
        self.path.unlink(missing_ok=True)


def _layout(place: Place) -> tuple[str, str, list[int]]:
    return place["name"], place["dtype"], place["shape"]


def views(path: Path, places: Sequence[Place], size: int) -> dict[str, Tensor]:
    """Return the tensors of a segment by name, without a copy."""
    whole = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
    found = {}
    for place in places:
        dtype: torch.dtype = getattr(torch, place["dtype"])
        count = dtype.itemsize
        for length in place["shape"]:
            count *= length
        found[place["name"]] = whole[place["offset"] : place["offset"] + count].view(dtype).view(place["shape"])
    return found


def _folder(size: int) -> Path:
    """Return the shared-memory folder if it has room (containers often have little), else the temporary folder."""
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free > size:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())
