"""Counts the resources of a process before and after: threads, tasks, files, temporary files and child processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROUNDS = 4
"""Number of repetitions. Pools and caches fill in the first rounds; a leak grows in every round."""


POOLS = ("rlcore", "asyncio_")
"""Name prefixes of pooled threads. The number of pooled threads depends on timing."""


def holdings(temporary: Path) -> dict[str, int]:
    """Return how many resources of each kind this process holds, with the entries of its temporary folder."""
    return {
        "threads": sum(not thread.name.startswith(POOLS) for thread in threading.enumerate()),
        "asyncio tasks": len(asyncio.all_tasks()),
        "open files": _entries(Path("/proc/self/fd"), Path("/dev/fd")),
        "temporary files or folders": sum(1 for _ in temporary.iterdir()),
        "child processes": max(len(multiprocessing.active_children()), _children()),
    }


async def growth(work: Callable[[], Awaitable[None]]) -> dict[str, int]:
    """Return what every repetition of ``work`` adds to the process; empty when a repetition adds nothing."""
    grown: dict[str, int] = {}
    with own_temporary_folder() as temporary:
        await work()
        for _ in range(ROUNDS - 1):
            before = holdings(temporary)
            await work()
            grown = await _after_settling(before, temporary)
            if not grown:
                break
    return grown


@contextmanager
def own_temporary_folder() -> Iterator[Path]:
    """Make `tempfile` and child processes use a folder that no other process writes to."""
    known, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="rlcore-testing-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = known
            if variable is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = variable


async def _after_settling(before: dict[str, int], temporary: Path) -> dict[str, int]:
    """Return the increase over ``before``, after a short wait for resources that are being released."""
    for _ in range(10):
        now = holdings(temporary)
        grown = {name: now[name] - before[name] for name in now if now[name] > before[name]}
        if not grown:
            break
        await asyncio.sleep(0.02)
    return grown


def _entries(*folders: Path) -> int:
    for folder in folders:
        if folder.is_dir():
            return len(os.listdir(folder))
    return 0


def _children() -> int:
    """Return the number of child processes from the kernel's list (Linux), including zombies."""
    count = 0
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended in the meantime
            count += len(path.read_text(encoding="ascii").split())
    return count
