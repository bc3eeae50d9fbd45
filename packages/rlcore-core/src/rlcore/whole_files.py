"""Files that appear whole or not at all, and one sentence when they cannot be written.

What is being written stands beside its place as ``.NAME.partial``. Only one process writes in a run directory, so a
name of that form that is found there was left by one that was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rlcore.errors import UserError


def beside(path: Path) -> Path:
    """Where a file or folder is written before it takes its place."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which is put in its place when the block ends without an error.

    Raises:
        UserError: it cannot be written.
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
    """Put a text there whole, or not at all. Raises as `whole`."""
    with whole(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block, such as of a full disk, into the `UserError` about a file of the run."""
    try:
        yield
    except OSError as error:
        gone = not path.parent.is_dir()
        raise UserError(
            f"{path} cannot be written",
            found="its folder is gone" if gone else error.strerror or str(error),
            mend="put the folder back, or start again"
            if gone
            else "make room or give the permission; --resume goes on from the last checkpoint",
        ) from error


def sweep(folder: Path) -> None:
    """Remove what a killed process left half written in a folder of the run."""
    for path in folder.glob(".*.partial"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


__all__ = ["beside", "sweep", "told", "whole", "write_whole"]
