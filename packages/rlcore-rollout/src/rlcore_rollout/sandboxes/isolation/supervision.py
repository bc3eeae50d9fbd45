"""The parent of a session's process. It never runs code of a model, and checks limits that the kernel does not have."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from . import kernel
from .limits import MIB, private_bytes
from .scratch import deleted_bytes, tree_bytes

MEMORY_STATUS, FILES_STATUS = 113, 114
"""Exit statuses of a session that exceeds the limit on memory, or on files."""
INTERVAL_MS = 100


def fork_supervised(check: Callable[[int], int]) -> int:
    """Fork, and return in the child only.

    The parent closes its descriptors, ends the child when it ends itself, and ends with the status of the child.

    Args:
        check: called several times a second with the process id of the child; a status other than 0 ends the session,
            with this status

    Returns: the write end of a pipe. The checks begin when a byte is written to it. If it is closed before, there are
        no checks.
    """
    alive, ours = os.pipe()
    ready, theirs = os.pipe()
    child = os.fork()
    if child:
        _supervise(child, ready, {ours, ready}, check)
    os.close(ours)
    os.close(ready)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:
        os._exit(0)  # the parent has ended before the kernel was told to end this process with it
    os.close(alive)
    return theirs


def _supervise(child: int, ready: int, kept: set[int], check: Callable[[int], int]) -> NoReturn:
    status = 70
    try:
        for low, high in _gaps(kept):
            os.closerange(low, high)
        handle = os.pidfd_open(child)
        ended = bool(select.select([handle, ready], [], [], None)[0] == [handle])
        checking = not ended and bool(os.read(ready, 1))
        reason = 0
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not poll.poll(INTERVAL_MS if checking else None):
            with contextlib.suppress(OSError, ValueError):
                reason = check(child)
            if reason:
                os.kill(child, signal.SIGKILL)
                checking = False
        status = reason or _status(os.waitpid(child, 0)[1])
    finally:
        os._exit(status)


def _status(waited: int) -> int:
    """The exit status of the child, or the death by its signal."""
    code = os.waitstatus_to_exitcode(waited)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


def _gaps(kept: set[int]) -> list[tuple[int, int]]:
    edges = [-1, *sorted(kept), 1 << 20]
    return [(low + 1, high) for low, high in itertools.pairwise(edges)]


def memory_check(limits: Any, baseline: int) -> Callable[[int], int]:
    """A check of the memory of all processes that /proc shows, which are those of the session's PID namespace."""
    most = limits.memory_mb * MIB

    def check(child: int) -> int:
        folders = [f"/proc/{name}" for name in os.listdir("/proc") if name.isdigit()]
        if len(folders) < 2 or sum(max(0, _private(folder) - baseline) for folder in folders) <= most:
            return 0
        return MEMORY_STATUS if sum(map(_proportional, folders)) > most else 0

    return check


def files_check(limits: Any, scratch: str) -> Callable[[int], int]:
    """A check of the files in a scratch folder, and of deleted ones that are still open."""
    most = limits.file_mb * MIB

    def check(child: int) -> int:
        return FILES_STATUS if tree_bytes(scratch) + deleted_bytes(child) > most else 0

    return check


def _private(folder: str) -> int:
    with contextlib.suppress(OSError):
        return private_bytes(folder)
    return 0


def _proportional(folder: str) -> int:
    with contextlib.suppress(OSError), open(f"{folder}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0
