"""Run code of plugins, so that whatever it raises can be reported, and slow code is named.

A plugin may raise exceptions that would end the process, such as ``SystemExit``, and exceptions whose message cannot be
read. Only Ctrl-C of the user ends more than the plugin's own work.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def plugin_code(what: str) -> Iterator[None]:
    """Run a block of a plugin's code.

    ``what`` names the plugin and what it does. It is logged once the block takes longer than `SLOW_S`, unless it is
    empty. An exception that would end the process is raised as `Ended`; other exceptions, and Ctrl-C of the user, are
    raised unchanged.
    """
    slow = threading.Timer(SLOW_S, log.warning, ("%s takes longer than %g s", what, SLOW_S))
    slow.daemon = True
    if what:
        slow.start()
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise Ended(error_text(error)) from error
    finally:
        slow.cancel()
