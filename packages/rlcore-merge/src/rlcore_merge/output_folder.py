"""A folder that appears whole or not at all.

It is filled as ``.NAME.partial`` beside its place and renamed when all is written. A folder of that name that is locked
belongs to a process that is alive; one that is not was left by one that was killed, and is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore.errors import UserError
from rlcore.whole_files import beside


def check_new(out: Path) -> None:
    """Raises `UserError` when the place is taken."""
    if out.exists() or out.is_symlink():
        raise UserError(
            "the output folder exists",
            found="a file"
            if out.is_file()
            else f"{sum(1 for _ in out.iterdir())} entries"
            if out.is_dir()
            else "a link",
            where=str(out),
            mend="give another --out, or remove it first",
        )


def check_room(out: Path, size: int) -> None:
    """Raises `UserError` when the disk has no room for so many bytes."""
    room = next(folder for folder in out.absolute().parents if folder.is_dir())
    usage = shutil.disk_usage(room)
    free = usage.free
    if usage.total and free < size:  # what has no size is no disk: making the folder tells what it is
        raise UserError(
            "there is not enough room on the disk",
            found=f"{free / 1e9:,.2f} GB free, and the output takes {size / 1e9:,.2f} GB",
            where=str(room),
            mend="make room, or give an --out on another disk",
        )


@contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """A new folder to fill, which takes its place when the block ends without an error.

    Raises:
        UserError: another process is writing it, it cannot be written, or somebody took the place meanwhile.
    """
    partial = beside(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _take(partial)
    except OSError as error:
        raise UserError("the output folder cannot be written", found=str(error), where=str(out)) from None
    try:
        yield partial
        check_new(out)
        partial.rename(out)
    except OSError as error:
        found = f"{error.strerror or error}; {shutil.disk_usage(out.parent).free / 1e9:,.2f} GB are free"
        raise UserError(
            "the output cannot be written", found=found, where=str(out), mend="make room or give the permission"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _take(partial: Path) -> int:
    """Make the folder, or take over one that a killed process left; the descriptor holds its lock."""
    partial.mkdir(exist_ok=True)
    lock = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UserError(
            "another process is writing this output",
            found=f"{partial.name} is locked",
            where=str(partial),
            mend="wait for it, or give another --out",
        ) from None
    for path in partial.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return lock
