"""End all processes of a benchmark when it ends."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 3.0
"""Seconds before a process is killed."""
ENDS_BY_ITSELF = b"multiprocessing.resource_tracker"
"""A helper of Python that removes shared memory and then ends by itself."""


def end_with_this_process() -> None:
    """Make SIGTERM and SIGINT raise `SystemExit`, and end all descendants with this process.

    This process adopts orphaned descendants, including those in other sessions. Call this function before any other
    `atexit` registration: handlers run in reverse order.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    atexit.register(_end_descendants, os.getpid())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> None:
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    _end_descendants(os.getpid())  # unblocks code that waits for one of them
    raise SystemExit(128 + number)


def _end_descendants(owner: int) -> None:
    if os.getpid() != owner:  # a forked child inherits the handlers
        return
    for number, seconds in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        until = time.monotonic() + seconds
        while (found := list(_descendants(owner))) and time.monotonic() < until:
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            time.sleep(0.02)


def _descendants(ancestor: int) -> Iterator[int]:
    """Running descendants. Empty on systems without /proc."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            state, parent, *_ = stat.rpartition(")")[2].split()
            if state != "Z" and ENDS_BY_ITSELF not in (folder / "cmdline").read_bytes():
                parents[int(folder.name)] = int(parent)
    waiting = [ancestor]
    while waiting:
        above = waiting.pop()
        children = [process for process, parent in parents.items() if parent == above]
        waiting += children
        yield from children
