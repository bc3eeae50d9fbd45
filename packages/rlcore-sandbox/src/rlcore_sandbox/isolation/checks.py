"""Limits that the kernel does not have. The process that starts sessions checks them several times a second."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from typing import Any

from . import limits, scratch

MEMORY_STATUS, FILES_STATUS = 113, 114
"""Exit statuses for sessions that are ended because they exceed the limit on memory, or on files."""
INTERVAL_S = 0.2


def tree(process: int) -> set[int]:
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


def progress(process: int) -> str:
    """The time that a process has run, as the kernel writes it; empty where the kernel does not know it."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/schedstat", encoding="ascii") as file:
        return file.read()
    return ""


def threads(processes: Iterable[int]) -> int:
    """The number of all threads of processes; a process has at least one."""
    return sum(map(_threads, processes))


def memory_status(processes: Collection[int], limits_: Any, baseline: int) -> int:
    """`MEMORY_STATUS` if several processes together exceed the limit on memory, otherwise 0.

    Args:
        processes: of one session; the memory of each is limited by the kernel
        limits_: with the fields of `rlcore.types.SandboxLimits`
        baseline: memory of a process when a session starts, in bytes
    """
    folders = [f"/proc/{each}" for each in processes]
    most = limits_.memory_mb * limits.MIB
    if len(folders) < 2 or sum(max(0, _private(folder) - baseline) for folder in folders) <= most:
        return 0
    return MEMORY_STATUS if sum(map(_proportional, folders)) - baseline > most else 0


def files_status(processes: Iterable[int], limits_: Any, folder: str) -> int:
    """`FILES_STATUS` if the files in a scratch folder, and deleted ones that are still used, exceed the limit."""
    most = limits_.file_mb * limits.MIB
    size = scratch.tree_bytes(folder)
    if size <= most:
        size += scratch.deleted_bytes(processes, folder, unknown=most)
    return FILES_STATUS if size > most else 0


def _threads(process: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{process}/task"))
    return 0


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
