"""A short name for a base model, so that an adapter can say which one it was trained on.

SHA-256 over the names, dtypes and shapes of all tensors, sorted by name, and 16 samples of 64 bytes of each, spread
evenly. It does not depend on how the tensors are divided into files, and takes a fraction of a second for any size.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

SAMPLES, SAMPLE_BYTES = 16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What is looked at of a tensor."""

    kind: str
    """Its dtype as safetensors writes it, such as ``BF16``."""
    element_bytes: int
    shape: tuple[int, ...]
    read: Callable[[int, int], bytes]
    """The bytes of ``count`` elements from ``start`` on in row-major order."""


def fingerprint(tensors: Mapping[str, Described]) -> str:
    """The first 32 hexadecimal digits."""
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
    """The fingerprint of a Hugging Face folder's weights, which are not loaded.

    Raises:
        UserError: its weights are missing, damaged, or not safetensors.
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
    """The header of a file of safetensors, and the position in it at which the tensors begin.

    Raises:
        UserError: it is truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if 8 + length > path.stat().st_size:
                raise ValueError(f"a header of {length:,} bytes in {path.stat().st_size:,}")
            header: dict[str, Any] = json.loads(file.read(length).decode("utf-8"))
            return dict(header), 8 + length
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise UserError(
            "a safetensors file cannot be read", found=str(error), where=str(path), mend="copy or save the file again"
        ) from None


def _files(folder: Path) -> list[Path]:
    """Of the whole file, the shards that an index names, and any other files, the first that are there."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            return [folder / name for name in sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError("the index of the weights cannot be read", found=repr(error), where=str(index)) from None
    if found := sorted(folder.glob("*.safetensors")):
        return found
    raise UserError(
        "the base of an adapter has its weights as safetensors, of which its fingerprint is made",
        found=", ".join(sorted(path.name for path in folder.glob("*"))[:6]) or "no such folder",
        where=str(folder),
        mend=f"rlcore merge {folder} --out FOLDER writes them so",
    )


def _read(path: Path, position: int, element_bytes: int, start: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position + start * element_bytes)
        return file.read(count * element_bytes)
