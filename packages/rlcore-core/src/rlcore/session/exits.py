"""Early ends of a run: SIGINT, SIGTERM and SIGHUP during a block, and components that would end the process."""

from __future__ import annotations

import atexit
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rlcore.console.terminal import leave_closed_terminal
from rlcore.errors import ComponentExitError
from rlcore.plugin_calls import Interrupt


@contextmanager
def exits_reported() -> Iterator[None]:
    """Turn ``sys.exit`` of a component into a `ComponentExitError`, which names the place of the call."""
    try:
        yield
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ComponentExitError(
            f"a component tried to end the process: sys.exit({error.code!r}) in {place.filename}:{place.lineno}"
        ) from error


Handler = Callable[[int, FrameType | None], None]
ENDS = (signal.SIGTERM, signal.SIGHUP)
"""Signals of a batch system, and of a terminal that closes."""
STOPS = (signal.SIGINT, *ENDS)
REPEAT_S = 1.0
"""Ctrl-C within this time after the first signal, in seconds, is the same one: a launcher also forwards it."""


class Terminated(Interrupt):
    """SIGTERM or SIGHUP, raised where the process was: work is undone and closed as after SIGINT."""


def status_of(error: BaseException | None) -> int:
    """The exit status after an interruption: 143 for SIGTERM and SIGHUP, else 130."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


_stopped_with: int | None = None
"""The exit status of a stopped run, with which the process ends. Handlers of signals then stay until its end."""


def exits_with(status: int) -> int:
    """Return the exit status of a stopped run, which a further signal does not change while the interpreter exits."""
    global _stopped_with
    _stopped_with = status
    atexit.unregister(_end_with_status)
    atexit.register(_end_with_status)  # last, so that it runs before all other functions at the exit
    return status


def _end_with_status() -> None:
    if (status := _stopped_with) is not None:
        for number in STOPS:
            signal.signal(number, lambda *_: os._exit(status))


@atexit.register
def _ignore_stops() -> None:
    """Ignore further signals. It is registered first, so it runs last: then Python removes its own handlers."""
    for number in STOPS if _stopped_with is not None else ():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stops_handled(handle: Handler, numbers: Sequence[signal.Signals] = STOPS) -> Iterator[None]:
    """Call ``handle`` for these signals inside the block. Outside of the main thread, the handlers do not change."""
    with _handled(handle, *numbers):
        yield


@contextmanager
def terminations_raised() -> Iterator[None]:
    """Raise `Terminated` for SIGTERM and SIGHUP inside the block, so that engines and files are closed."""
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a child process, which ends as it would without this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if number == signal.SIGHUP:
            leave_closed_terminal()
        raise Terminated

    with _handled(handle, *ENDS):
        yield


@contextmanager
def _handled(handle: Handler, *numbers: signal.Signals) -> Iterator[None]:
    global _stopped_with
    _stopped_with = None  # a process that goes on, as a notebook does after `main`, did not end with the last run
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as with nohup: the process outlives the terminal
        numbers = tuple(number for number in numbers if number != signal.SIGHUP)
    try:
        before = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not the main thread, so the caller keeps the handlers
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items() if _stopped_with is None else ():
            signal.signal(number, handler)
