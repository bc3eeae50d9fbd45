"""Create what an export writes: a path appears under its name only when it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore.atomic_files import FREE_DISK_SPACE, beside
from rlcore.errors import WriteError


@contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """The path to write to, which becomes ``out`` when the block ends without an error. Raises `WriteError`."""
    with _renamed(out, lambda partial: partial.unlink(missing_ok=True)) as partial:
        yield partial


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """An empty folder, which becomes ``out`` when the block ends without an error. Raises `WriteError`."""
    with _renamed(out, lambda partial: shutil.rmtree(partial, ignore_errors=True)) as partial:
        partial.mkdir()
        yield partial


@contextmanager
def _renamed(out: Path, remove: Callable[[Path], None]) -> Iterator[Path]:
    partial = beside(out)
    try:
        remove(partial)  # of a killed process
        yield partial
        partial.rename(out)
    except OSError as error:
        remove(partial)
        raise WriteError(f"{out} cannot be written", found=error.strerror or str(error), fix=FREE_DISK_SPACE) from error
    except BaseException:
        remove(partial)
        raise


__all__ = ["new_file", "new_folder"]
