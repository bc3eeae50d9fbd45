"""The limits of a session: those of the kernel for each process, and those that the kernel does not have.

The process that starts sessions checks the second kind several times a second. What is in a scratch folder is hostile.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection, Iterable
from typing import Any

MIB = 2**20
PENDING_SIGNALS = 128
MEMORY_STATUS, FILES_STATUS = 113, 114
"""Exit statuses for sessions that are ended because they exceed the limit on memory, or on files."""
INTERVAL_S = 0.2
_MOST_FILES, _MOST_DEPTH = 10_000, 40


def apply_limits(limits: Any, *, processes: int | None) -> None:
    """Set the limits of this process for good.

    Args:
        limits: with the fields of `rlcore.types.SandboxLimits`
        processes: processes and threads of this user in this user namespace; None leaves the limit as it is
    """
    wanted = {
        resource.RLIMIT_AS: address_space_bytes() + limits.memory_mb * MIB,
        resource.RLIMIT_FSIZE: limits.file_mb * MIB,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_SIGPENDING: PENDING_SIGNALS,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if processes is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def address_space_bytes() -> int:
    """What this process has mapped now; the limit on memory is counted from here."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def private_bytes(folder: str) -> int:
    """Anonymous memory of the process whose folder in /proc is given, with what it shares with its parent."""
    with open(os.path.join(folder, "statm"), "rb") as file:
        _, resident, shared = file.read().split()[:3]
    return (int(resident) - int(shared)) * resource.getpagesize()


def tree(roots: Iterable[int]) -> set[int]:
    """Processes and their descendants, as this process sees them."""
    found: set[int] = set()
    waiting = set(roots)
    while waiting:
        each = waiting.pop()
        found.add(each)
        waiting |= children(each) - found
    return found


def children(process: int) -> set[int]:
    """The children of a process, which may end meanwhile."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{task}/children", "rb") as file:
                found.update(map(int, file.read().split()))
    return found


def progress(process: int) -> str:
    """The time that a process has run, as the kernel writes it; empty where the kernel does not know it."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/schedstat", encoding="ascii") as file:
        return file.read()
    return ""


def threads(processes: Iterable[int]) -> int:
    """The number of all threads of processes; a process has at least one."""
    return sum(map(_threads, processes))


def memory_status(processes: Collection[int], limits: Any, baseline: int) -> int:
    """`MEMORY_STATUS` if several processes together exceed the limit on memory, otherwise 0.

    Args:
        processes: of one session; the memory of each is limited by the kernel
        limits: with the fields of `rlcore.types.SandboxLimits`
        baseline: memory of a process when a session starts, in bytes
    """
    folders = [f"/proc/{each}" for each in processes]
    most = limits.memory_mb * MIB
    if len(folders) < 2 or sum(max(0, _private(folder) - baseline) for folder in folders) <= most:
        return 0
    return MEMORY_STATUS if sum(map(_proportional, folders)) - baseline > most else 0


def files_status(processes: Iterable[int], limits: Any, folder: str) -> int:
    """`FILES_STATUS` if the files in a scratch folder, and deleted ones that are still used, exceed the limit."""
    most = limits.file_mb * MIB
    size = tree_bytes(folder)
    if size <= most:
        size += deleted_bytes(processes, folder, unknown=most)
    return FILES_STATUS if size > most else 0


def _threads(process: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{process}/task"))
    return 0


def _private(folder: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return private_bytes(folder)
    return 0


def _proportional(folder: str) -> int:
    """Anonymous memory; what several processes share is divided between them."""
    with contextlib.suppress(OSError), open(f"{folder}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0


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
