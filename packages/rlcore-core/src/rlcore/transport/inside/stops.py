"""Signals that ask a run to stop are for its main process, which finishes its step with the help of its workers.

Terminals, ``timeout`` and batch systems send them to all processes of a job. Python 3.8 and the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

if sys.version_info >= (3, 9):
    from collections.abc import Iterator
else:
    from typing import Iterator

STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stops_held() -> Iterator[None]:
    """Hold these signals back in the block. A process that starts in it holds them until `leave_stops_to_main`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_stops_to_main() -> None:
    """Survive these signals in this process, which ends when the main process closes its connection or ends.

    Processes that it starts end as usual: a handler, unlike a signal that is ignored, is not inherited.
    """
    for number in STOPS:
        signal.signal(number, _do_nothing)
    os.register_at_fork(after_in_child=_restore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def _do_nothing(number: int, frame: object) -> None:
    """Let the main process decide."""


def _restore() -> None:
    for number in STOPS:
        if signal.getsignal(number) is _do_nothing:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
