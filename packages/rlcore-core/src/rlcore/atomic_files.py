"""Write files atomically, and report write errors as `WriteError`.

A file is written as ``.NAME.partial`` in the same folder and then renamed. Only one process writes to a run directory,
so an existing partial file is left over from a killed process.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rlcore.errors import WriteError
from rlcore.plugin_calls import error_text

FREE_DISK_SPACE = "free disk space, or use another folder"
"""What to do about a full disk."""


def is_full_disk(error: Exception) -> bool:
    """Whether an error is that of a full disk, for which some libraries have types of their own."""
    return os.strerror(errno.ENOSPC) in error_text(error)


def beside(path: Path) -> Path:
    """The temporary path of a file or folder while it is written."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` when the block ends without an error.

    Raises:
        WriteError: the file cannot be written.
    """
    partial = beside(path)
    try:
        with told(path), partial.open("wb") as file:
            yield file
        with told(path):
            partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text atomically. Raises like `whole`."""
    with whole(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Convert an `OSError` in the block, such as a full disk, to a `WriteError` about the file."""
    try:
        yield
    except OSError as error:
        gone = not path.parent.is_dir()
        raise WriteError(
            f"{path} cannot be written",
            found="its folder no longer exists" if gone else error.strerror or str(error),
            fix="restore the folder, or start a new run"
            if gone
            else "free disk space or change the permissions, then continue from the last checkpoint with --resume",
        ) from error


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove partial files that a killed process left in a folder of the run."""
    for path in folder.glob(".*.partial"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
