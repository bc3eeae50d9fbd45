"""How much a session has written to its scratch folder, whose contents are hostile."""

from __future__ import annotations

import contextlib
import os

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


def deleted_bytes(process: int) -> int:
    """Bytes of files that a process has deleted and still holds open."""
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                found = entry.stat()
                total += found.st_blocks * 512 if not found.st_nlink else 0
    return total
