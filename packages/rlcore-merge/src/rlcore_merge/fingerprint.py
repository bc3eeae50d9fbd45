"""The fingerprint of a base model in any layout, see `rlcore.models.fingerprint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlcore.models.fingerprint import Described
from rlcore.models.fingerprint import fingerprint as of_described

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The first 32 hexadecimal digits."""
    return of_described({name: _described(tensor) for name, tensor in tensors.items()})


def _described(tensor: Tensor) -> Described:
    def read(start: int, count: int) -> bytes:
        return tensor.read(start, count).tobytes()

    return Described(kind=tensor.kind.name, element_bytes=tensor.kind.size, shape=tuple(tensor.shape), read=read)
