"""Processes: end with the parent, and kill whole trees of them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable

from rlcore_sandbox.isolation.limits import children, tree

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""
_libc = ctypes.CDLL(None, use_errno=True)
STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that a terminal or a batch system sends to all processes. They are for the host, which ends the others."""
LONGEST_KILL_S = 2.0
"""Time for killing processes that start others meanwhile."""


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, whose id is given."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (parent, 0):  # 0: a parent outside of the PID namespace
        os._exit(0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def prefer_for_memory() -> None:
    """Let the kernel kill this process, rather than another one, when the machine runs out of memory."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        return


def kill_tree(root: int) -> None:
    """Kill a process and all its descendants. They are stopped first, so that they cannot start others."""
    _kill_all([root])


def kill_orphans(known: Iterable[int]) -> None:
    """Kill all children of this process, with their descendants, except the known ones, and wait for them."""
    kept = set(known)
    if orphans := children(os.getpid()) - kept:
        _kill_all(orphans)
    for orphan in orphans:
        reaped(orphan)


def reaped(child: int) -> bool:
    """Whether a child of this process has ended, and is now forgotten."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _kill_all(roots: Iterable[int]) -> None:
    found: set[int] = set()
    end = time.monotonic() + LONGEST_KILL_S
    while new := tree(roots) - found:
        for each in new:
            _signal(each, signal.SIGSTOP)
        found |= new
        if time.monotonic() > end:
            break
    for each in found:
        _signal(each, signal.SIGKILL)


def _signal(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")
