"""How much a session has written to its scratch folder, whose contents are hostile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

_MOST_FILES, _MOST_DEPTH = 10_000, 40


def tree_bytes(folder: str) -> float:
    """Bytes that the files below a folder take; infinite for too many files, and for folders that cannot be listed."""
    total, files, waiting = 0, 0, [(folder, 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    files += 1
                    if files > _MOST_FILES or depth > _MOST_DEPTH:
                        return float("inf")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted meanwhile
        except OSError:  # a path that is too long, or a folder that cannot be listed
            return float("inf")
    return total


def deleted_bytes(processes: Iterable[int], folder: str, *, unknown: float) -> float:
    """Bytes of files of a folder that are deleted, but still open or mapped.

    Args:
        processes: those that may use them
        folder: in which they were
        unknown: counted for each file that is mapped, but not open, whose size cannot be found
    """
    found: dict[int, float] = {}
    mapped: set[int] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if not status.st_nlink:
                        found[status.st_ino] = status.st_blocks * 512
        mapped |= _deleted_mappings(process, os.fsencode(folder))
    return sum(found.values()) + unknown * len(mapped - found.keys())


def _deleted_mappings(process: int, folder: bytes) -> set[int]:
    """The inodes of deleted files of a folder that a process has mapped."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps", "rb") as file:
        lines = [line for line in file if line.endswith(b" (deleted)\n") and folder in line]
        return {int(line.split(maxsplit=5)[4]) for line in lines}
    return set()
