"""CPU threads: how they wait, and settings that end with a call from Python."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WAITING = "OMP_WAIT_POLICY"
_TURNS = "GOMP_SPINCOUNT", "1000"
"""Turns of the waiting loop before a thread sleeps: enough to bridge the gap between two short operations."""


def let_waiting_threads_sleep() -> None:
    """Make OpenMP threads sleep soon while they wait, unless ``OMP_WAIT_POLICY`` is set.

    By default they spin for milliseconds. On a busy machine, a spinning thread occupies the core that the other thread
    needs, and a step takes several times as long. OpenMP reads the variables once, when torch is imported, so calling
    this later has no effect.
    """
    if "torch" not in sys.modules and WAITING not in os.environ:
        os.environ[WAITING] = "passive"
        os.environ.setdefault(*_TURNS)


_undone_at_end: list[Callable[[], None]] = []
_keeping = 0
"""How many blocks of `threads_kept` are active."""
_lock = threading.Lock()


def undo_at_end(undo: Callable[[], None]) -> None:
    """Call a function at the end of the block of `threads_kept`, if there is one."""
    _undone_at_end.append(undo)


@contextmanager
def threads_kept() -> Iterator[None]:
    """Undo changes of the number of threads at the end of the block, or of the last one if several threads have one."""
    global _keeping
    with _lock:
        if _keeping == 0:
            _undone_at_end.clear()
        _keeping += 1
    try:
        yield
    finally:
        with _lock:
            _keeping -= 1
            while _undone_at_end and not _keeping:
                _undone_at_end.pop()()
