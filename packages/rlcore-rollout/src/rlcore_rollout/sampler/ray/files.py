"""The files of a model folder, for processes on machines that do not have it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

PART_BYTES = 1 << 28
"""Bytes of a file that are sent at a time."""
HASHED_BYTES = 1 << 20
"""Files up to this size are compared by content; larger ones, such as weights, by their size."""

Listing = Mapping[str, tuple[int, str]]
"""Size and SHA-256 of each file by name. The hash of a large file is empty."""


def listing(folder: Path) -> Listing:
    """Return the files of a model folder; empty if there is none. Subfolders do not belong to a model."""
    if not folder.is_dir():
        return {}
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            size = path.stat().st_size
            found[path.name] = size, hashlib.sha256(path.read_bytes()).hexdigest() if size <= HASHED_BYTES else ""
    return found


def parts(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of a folder; a large one in several parts, in order."""
    for name in listing(folder):
        with (folder / name).open("rb") as file:
            part = file.read(PART_BYTES)
            yield name, part
            while part := file.read(PART_BYTES):
                yield name, part


__all__ = ["Listing", "listing", "parts"]
