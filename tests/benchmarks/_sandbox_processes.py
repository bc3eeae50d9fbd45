"""The local sandboxes of this machine, and their processes with what they cost."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rlcore_sandbox import support
from rlcore_sandbox.isolation import BACKENDS


def usable() -> list[str]:
    """The local backends that this machine has. The others are printed with the reason."""
    found = []
    for backend in BACKENDS:
        reason = getattr(support, backend)().reason
        if reason:
            print(f"  {backend} is not measured: {reason}")
        else:
            found.append(backend)
    return found


def descendants(process: int) -> set[int]:
    """All processes that a process has started."""
    found: set[int] = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            for child in map(int, (task / "children").read_text(encoding="ascii").split()):
                found |= {child, *descendants(child)}
    return found


def cpu_seconds(process: int) -> float:
    """CPU time of the threads of a process."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def cpu_of_all() -> float:
    """CPU time of this process and those that it has started and that run."""
    return sum(map(cpu_seconds, {os.getpid(), *descendants(os.getpid())}))


def proportional_mb(process: int) -> float:
    """Memory in MB; what several processes share is divided between them."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:"))
