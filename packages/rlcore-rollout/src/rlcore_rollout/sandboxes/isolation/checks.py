"""Limits that the kernel does not have. The process that starts sessions checks them several times a second."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from . import limits, scratch

MEMORY_STATUS, FILES_STATUS = 113, 114
"""Exit statuses for sessions that are ended because they exceed the limit on memory, or on files."""
INTERVAL_S = 0.2


def memory_status(process: int, limits_: Any, baseline: int) -> int:
    """`MEMORY_STATUS` if a session with several processes exceeds the limit on memory, otherwise 0.

    Args:
        process: the first process of the session; its own memory is limited by the kernel
        limits_: with the fields of `rlcore.types.SandboxLimits`
        baseline: memory of a process when a session starts, in bytes
    """
    folders = [f"/proc/{each}" for each in _tree(process)]
    most = limits_.memory_mb * limits.MIB
    if len(folders) < 2 or sum(max(0, _private(folder) - baseline) for folder in folders) <= most:
        return 0
    return MEMORY_STATUS if sum(map(_proportional, folders)) - baseline > most else 0


def files_status(process: int, limits_: Any, folder: str) -> int:
    """`FILES_STATUS` if the files in a scratch folder, and deleted ones that are still open, exceed the limit."""
    size = scratch.tree_bytes(folder) + scratch.deleted_bytes(process)
    return FILES_STATUS if size > limits_.file_mb * limits.MIB else 0


def _tree(process: int) -> set[int]:
    """A process and its descendants, as this process sees them."""
    found: set[int] = set()
    waiting = {process}
    while waiting:
        each = waiting.pop()
        found.add(each)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children", "rb") as file:
                    waiting.update(set(map(int, file.read().split())) - found)
    return found


def _private(folder: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return limits.private_bytes(folder)
    return 0


def _proportional(folder: str) -> int:
    """Anonymous memory; what several processes share is divided between them."""
    with contextlib.suppress(OSError), open(f"{folder}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0
