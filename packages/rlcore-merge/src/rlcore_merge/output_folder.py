"""An output folder that appears only when it is complete.

It is written as ``.NAME.partial`` next to its final location and renamed at the end. If a folder of that name is
locked, another process is writing it. If it is not locked, a killed process left it, and it is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore.atomic_files import beside
from rlcore.errors import UserError


def check_new(out: Path) -> None:
    """Raise `UserError` if the output exists, unless it is an empty folder that a rename can replace."""
    if out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
        if not os.path.ismount(out) and out.resolve() != Path.cwd():
            return
        raise UserError(
            "the output folder cannot be replaced",
            found="a mount point" if os.path.ismount(out) else "the current folder",
            where=str(out),
            fix=f"pass a folder inside it, such as {out / 'merged'}",
        )
    if out.exists() or out.is_symlink():
        raise UserError(
            "the output folder already exists",
            found="a file"
            if out.is_file()
            else f"{sum(1 for _ in out.iterdir())} entries"
            if out.is_dir()
            else "a link",
            where=str(out),
            fix="pass another --out, or remove the folder first",
        )


def check_room(out: Path, size: int) -> None:
    """Raise `UserError` if the disk has less than ``size`` bytes free."""
    existing = next(folder for folder in out.absolute().parents if folder.is_dir())
    usage = shutil.disk_usage(existing)
    free = usage.free
    if (
        usage.total and free < size
    ):  # a file system of size 0 is not a disk: creating the folder raises the actual error
        raise UserError(
            "there is not enough disk space",
            found=f"{free / 1e9:,.2f} GB free, but the output needs {size / 1e9:,.2f} GB",
            where=str(existing),
            fix="free disk space, or pass an --out on another disk",
        )


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to ``out`` when the block ends without an error.

    Raises:
        UserError: another process is writing it, it cannot be written, or it exists by the time it is complete.
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
            "the output cannot be written", found=found, where=str(out), fix="free disk space or grant the permission"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _take(partial: Path) -> int:
    """Create the folder or take over one that a killed process left. The returned descriptor holds its lock."""
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
            fix="wait for it to finish, or pass another --out",
        ) from None
    for path in partial.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return lock
