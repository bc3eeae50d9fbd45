"""What SIGINT and SIGTERM do while something runs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stops_handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, both signals call ``handle``; outside of the main thread whoever started it keeps them."""
    try:
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever started it owns the signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["stops_handled"]
