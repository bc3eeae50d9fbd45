"""Handles SIGINT and SIGTERM during a block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stops_handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handle`` for both signals inside the block. Outside of the main thread, the handlers do not change."""
    try:
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, so the caller keeps the handlers
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["stops_handled"]
