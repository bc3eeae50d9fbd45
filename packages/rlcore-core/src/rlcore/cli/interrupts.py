"""Ctrl-C: the first is an exception, and the second ends the process within a second, whatever runs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from rlcore.plugin_calls import Interrupt
from rlcore.session.exits import REPEAT_S

GRACE_S = 0.6
"""Time after the second Ctrl-C in which the program can still end on its own."""
STATUS = 130
_repeat_s = 0.0
"""Time in which a repeated signal is the same one."""


def ignore_repeats() -> None:
    """Count a signal that launchers and terminals send several times as one, until the command ends."""
    global _repeat_s
    _repeat_s = REPEAT_S


@contextlib.contextmanager
def interrupts_handled() -> Iterator[None]:
    """Handle Ctrl-C in the block. Does nothing outside of the main thread, or if Ctrl-C is handled already.

    A thread counts the signals, because Python's handlers wait until the main thread runs Python code, which it may
    never do again. Threads and processes that hang do not delay the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_count, args=(reading,), name="rlcore-interrupts", daemon=True).start()
    signal.signal(signal.SIGINT, _interrupt)
    global _writing, _repeat_s
    _writing, _repeat_s = writing, 0.0
    try:
        yield
    finally:
        _writing = -1
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        os.close(writing)  # ends the thread, unless it is about to end the process


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupt


_writing = -1
"""Where the signals of this process are counted; -1 outside of the block."""


def _forget() -> None:
    """A forked process must not count its signals as those of its parent."""
    if _writing != -1:
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget)


def _count(reading: int) -> None:
    count, first = 0, 0.0
    with os.fdopen(reading, "rb", buffering=0) as signals:
        while received := signals.read(1):
            if received[0] != signal.SIGINT or (count and time.monotonic() - first < _repeat_s):
                continue
            count, first = count + 1, time.monotonic()
            if count == 2:
                time.sleep(GRACE_S)
                _end()


def _end() -> None:
    """End this process and the ones that it started."""
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted: ended without waiting for what still ran\n")
    flushing = threading.Thread(target=_flush, daemon=True)  # a stream may be blocked
    flushing.start()
    flushing.join(0.1)
    for child in _children():
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
    os._exit(STATUS)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _children() -> list[int]:
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text("ascii").split())
    return found
