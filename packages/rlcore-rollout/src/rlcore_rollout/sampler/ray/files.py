"""The files of a model folder, for processes on machines that do not have it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

PART_BYTES = 1 << 28
"""Bytes of a file that are sent at a time."""
HASHED_BYTES = 1 << 20
"""Files up to this size are compared by content; larger ones, such as weights, by their size."""
PREFIX = "rlcore-sent-model-"
"""Beginning of the name of a temporary folder. No other folder may have it: `remove_abandoned` deletes them."""

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


class SentFolder:
    """A temporary folder for a model, which is locked as long as this process lives.

    Attributes:
        path: the folder
    """

    def __init__(self) -> None:
        while (lock := _locked(path := Path(tempfile.mkdtemp(prefix=PREFIX)))) is None:
            pass  # another process has taken it for an abandoned one
        self.path, self._lock = path, lock

    def append(self, name: str, part: bytes) -> None:
        """Append to a file."""
        with (self.path / Path(name).name).open("ab") as file:
            file.write(part)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> None:
    """Delete the folders of processes that were killed, of this user on this machine."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process has removed it
            if path.lstat().st_uid == os.getuid() and (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder, and return its descriptor; None if a process has locked or removed it."""
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.is_dir():
                return lock
        os.close(lock)
    return None


__all__ = ["Listing", "SentFolder", "listing", "parts", "remove_abandoned"]
