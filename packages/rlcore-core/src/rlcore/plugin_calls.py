"""Run code of plugins, so that whatever it raises can be reported, and slow code is named.

A plugin may raise exceptions that would end the process, such as ``SystemExit``, and exceptions whose message cannot be
read. Only Ctrl-C of the user ends more than the plugin's own work.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from types import TracebackType

log = logging.getLogger("rlcore.plugins")

SLOW_S = 5.0
"""Seconds after which a running import or hook is named."""
LONGEST_TEXT = 2000


class Interrupt(KeyboardInterrupt):
    """Ctrl-C of the user. A plain ``KeyboardInterrupt`` may also come from a plugin."""


class Ended(Exception):
    """A plugin raised an exception that would have ended the process; it is the ``__cause__``."""


def is_interrupt(error: BaseException) -> bool:
    """Whether the user pressed Ctrl-C, rather than a plugin raising ``KeyboardInterrupt`` itself."""
    if isinstance(error, Interrupt):
        return True
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it cannot be told apart


def error_text(error: BaseException) -> str:
    """``Type: message``, shortened. Also for an exception whose message cannot be read."""
    if isinstance(error, Ended) and error.__cause__ is not None:
        error = error.__cause__
    name = type(error).__name__
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException as broken:
        if is_interrupt(broken):
            raise
        return f"{name} (its message cannot be read)"
    return f"{name}: {text[:LONGEST_TEXT]}" if text else name


def value_text(value: object, length: int = 80) -> str:
    """The shortened ``repr`` of a value; its type if ``repr`` fails."""
    try:
        text = repr(value)
    except BaseException as broken:
        if is_interrupt(broken):
            raise
        text = f"a {type(value).__name__} (it cannot be shown)"
    return text if len(text) <= length else f"{text[: length - 3]}..."


class plugin_code:  # used like a function
    """Run a block of a plugin's code.

    ``what`` names the plugin and what it does. It is logged once the block takes longer than `SLOW_S`, unless it is
    empty. An exception that would end the process is raised as `Ended`; other exceptions, and Ctrl-C of the user, are
    raised unchanged.
    """

    __slots__ = ("_key", "what")

    def __init__(self, what: str) -> None:
        self.what, self._key = what, 0

    def __enter__(self) -> None:
        self._key = _watch.begin(self.what) if self.what else 0

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        _watch.end(self._key)
        if error is not None and not isinstance(error, Exception) and not is_interrupt(error):
            raise Ended(error_text(error)) from error


class _Watch:
    """Names blocks that take long. Its thread runs only while there is a block to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, tuple[float, str]] = {}
        self._last = 0
        self._watching = False

    def begin(self, what: str) -> int:
        with self._lock:
            self._last += 1
            key = self._last
            self._running[key] = time.monotonic() + SLOW_S, what
            start, self._watching = not self._watching, True
        if start:
            threading.Thread(target=self._watch, name="rlcore-slow-plugins", daemon=True).start()
        return key

    def end(self, key: int) -> None:
        with self._lock:
            self._running.pop(key, None)

    def _watch(self) -> None:
        due = time.monotonic() + SLOW_S
        while True:
            time.sleep(max(0.0, due - time.monotonic()))
            with self._lock:
                late = [key for key, (due, _) in self._running.items() if due <= time.monotonic()]
                slow = [self._running.pop(key)[1] for key in late]
                if not self._running:
                    self._watching = False
                due = min((due for due, _ in self._running.values()), default=0.0)
                ended = not self._watching
            for what in slow:
                log.warning("%s takes longer than %g s", what, SLOW_S)
            if ended:
                return


_watch = _Watch()

__all__ = ["Ended", "Interrupt", "error_text", "is_interrupt", "plugin_code", "value_text"]
