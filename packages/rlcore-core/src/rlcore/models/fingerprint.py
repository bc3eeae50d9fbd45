"""A fingerprint of a base model, which identifies the base of an adapter.

SHA-256 over the names, dtypes and shapes of all tensors, sorted by name, and 16 evenly spaced samples of 64 bytes from
each. It does not depend on how tensors are split into files, and takes a fraction of a second for any model size.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import parse_json
from rlcore.models.contents import INDEX, indexed_files

SAMPLES, SAMPLE_BYTES = 16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The properties of a tensor that enter the fingerprint."""

    kind: str
    """The dtype as named by safetensors, such as ``BF16``."""
    element_bytes: int
    shape: tuple[int, ...]
    read: Callable[[int, int], bytes]
    """``read(start, count)``: the bytes of ``count`` elements from ``start`` in row-major order."""


def fingerprint(tensors: Mapping[str, Described]) -> str:
    """The first 32 hexadecimal digits of the hash."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.kind} {list(tensor.shape)}\n".encode())
        size = prod(tensor.shape)
        each = min(size, max(1, SAMPLE_BYTES // tensor.element_bytes))
        for sample in range(SAMPLES if size > SAMPLES * each else 1):
            count = each if size > SAMPLES * each else size
            start = sample * (size - count) // max(SAMPLES - 1, 1)
            total.update(tensor.read(start, count))
    return total.hexdigest()[:32]


def fingerprint_of_folder(folder: Path) -> str:
    """The fingerprint of a Hugging Face folder, without loading the weights.

    Raises:
        UserError: the weights are missing, damaged or not in the safetensors format.
    """
    tensors: dict[str, Described] = {}
    for path in _files(folder):
        header, data = safetensors_header(path)
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            element_bytes = (end - begin) // max(1, prod(shape)) or 1
            read = partial(_read, path, data + begin, element_bytes)
            tensors[name] = Described(kind=entry["dtype"], element_bytes=element_bytes, shape=shape, read=read)
    return fingerprint(tensors)


def safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and the offset of the tensor data.

    Raises:
        UserError: the file is truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if 8 + length > path.stat().st_size:
                raise ValueError(f"header of {length:,} bytes in a file of {path.stat().st_size:,} bytes")
            header: dict[str, Any] = dict(parse_json(file.read(length)))
            _check_header(header, path.stat().st_size - 8 - length)
            return header, 8 + length
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise UserError(
            "a safetensors file cannot be read", found=str(error), where=str(path), fix="copy or save the file again"
        ) from None


def _check_header(header: dict[str, Any], size: int) -> None:
    """Raise `ValueError` unless the entries of a header describe tensors within ``size`` bytes of data."""
    for name, entry in header.items():
        if name == "__metadata__":
            if not isinstance(entry or {}, dict):
                raise ValueError("its metadata is not an object")
            continue
        shape, offsets = entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets]
        if not all(type(number) is int and number >= 0 for number in numbers) or len(offsets) != 2:
            raise ValueError(f"the tensor {name} has the shape {shape} and the offsets {offsets}")
        if not (offsets[0] <= offsets[1] <= size and isinstance(entry["dtype"], str)):
            raise ValueError(f"the tensor {name} is at {offsets} of {size:,} bytes")


def _files(folder: Path) -> list[Path]:
    """The weight files: a single file, else the shards of an index, else all safetensors files."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if (folder / INDEX).is_file():
        return indexed_files(folder / INDEX)
    if found := sorted(folder.glob("*.safetensors")):
        return found
    raise UserError(
        "the base model of an adapter needs weights in the safetensors format",
        found=", ".join(sorted(path.name for path in folder.glob("*"))[:6]) or "no such folder",
        where=str(folder),
        fix=f"convert them: rlcore merge {folder} --out FOLDER",
    )


def _read(path: Path, position: int, element_bytes: int, start: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position + start * element_bytes)
        return file.read(count * element_bytes)
