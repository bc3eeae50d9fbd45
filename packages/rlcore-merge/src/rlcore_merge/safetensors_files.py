"""The safetensors format: the length of the header in 8 bytes, a JSON header, and the tensors without gaps."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge.blocks import Shape
from rlcore_merge.dtypes import KINDS, Kind
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.tensors import Stored

ALIGNMENT = 8


def read(path: Path) -> tuple[dict[str, Stored], Mapping[str, str]]:
    """The tensors and the metadata of a file. Only the header is read.

    Raises:
        UserError: the file is truncated or damaged, or has an unknown dtype.
    """
    file = MappedFile(path)
    try:
        if file.size < 8:
            raise ValueError("shorter than its length field")
        (length,) = struct.unpack("<Q", file.buffer[:8])
        if 8 + length > file.size:
            raise ValueError(f"the header has {length:,} bytes and the file {file.size:,}")
        header: dict[str, Any] = json.loads(file.buffer[8 : 8 + length].decode("utf-8"))
        metadata = dict(header.pop("__metadata__", {}))
        tensors = {name: _tensor(file, 8 + length, name, entry) for name, entry in header.items()}
        _check_contiguous(tensors, 8 + length, file.size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            "a safetensors file cannot be read",
            found=f"it is truncated or damaged: {error}",
            where=str(path),
            fix="copy or save the file again",
        ) from None
    return tensors, metadata


def _tensor(file: MappedFile, data: int, name: str, entry: Mapping[str, Any]) -> Stored:
    if entry["dtype"] not in KINDS:
        raise ValueError(f"{name} has the unknown dtype {entry['dtype']}")
    kind = KINDS[entry["dtype"]]
    shape = tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name} has the shape {list(shape)} and the offsets {[begin, end]}")
    if end - begin != prod(shape) * kind.size:
        raise ValueError(f"{name} has {end - begin:,} bytes for the shape {list(shape)}")
    return Stored(file, data + begin, kind, shape)


def _check_contiguous(tensors: Mapping[str, Stored], data: int, size: int) -> None:
    """Raise `ValueError` if tensors overlap or leave gaps: the header then does not belong to the data."""
    at = data
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].position, prod(item[1].shape))):
        if tensor.position != at:
            raise ValueError(
                f"{name} begins at {tensor.position - data:,}, but the tensor before it ends at {at - data:,}"
            )
        at += prod(tensor.shape) * tensor.kind.size
    if at != size:
        raise ValueError(f"{size - at:,} bytes follow the last tensor")


def header(tensors: Mapping[str, tuple[Kind, Shape]], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The header of a file with these tensors, and the position of each tensor in the file."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    offsets, at = {}, 0
    # Tensors with wide elements come first, so that every tensor is aligned to its element size.
    for name in sorted(tensors, key=lambda name: (-tensors[name][0].size, name)):
        kind, shape = tensors[name]
        size = prod(shape) * kind.size
        entries[name] = {"dtype": kind.name, "shape": list(shape), "data_offsets": [at, at + size]}
        offsets[name] = at
        at += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text, {name: 8 + len(text) + offset for name, offset in offsets.items()}
