"""Warnings, and exceptions that have no caller: one escaped line each, in place of Python's own output.

Python prints the text of a warning, of an exception in a thread, and of one in a destructor as it is. Code of a
component can put anything into it, such as the output of a model.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rlcore.containment import error_text
from rlcore.terminal import say


@contextlib.contextmanager
def stray_messages_escaped() -> Iterator[None]:
    """Print these messages through `rlcore.terminal` inside the block."""
    before = warnings.showwarning, threading.excepthook, sys.unraisablehook
    warnings.showwarning, threading.excepthook, sys.unraisablehook = _warned, _failed_in_thread, _failed_unseen
    try:
        yield
    finally:
        warnings.showwarning, threading.excepthook, sys.unraisablehook = before


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say(f"warning: {category.__name__}: {message} ({Path(filename).name}:{lineno})", err=True, stream=file)


def _failed_in_thread(failure: threading.ExceptHookArgs, /) -> None:
    name = failure.thread.name if failure.thread is not None else "unknown"
    if failure.exc_value is not None and not isinstance(failure.exc_value, SystemExit):
        _say(f"an exception ended the thread {name!r}", failure.exc_value)


def _failed_unseen(failure: sys.UnraisableHookArgs, /) -> None:
    if failure.exc_value is not None:
        _say(failure.err_msg or "an exception was ignored", failure.exc_value)


def _say(what: str, error: BaseException) -> None:
    from rlcore.plugins.loading import source_line  # looks for plugins, which not every command needs

    place = source_line(error)
    say(f"{what}: {error_text(error)}{f' ({place})' if place else ''}", err=True)


__all__ = ["stray_messages_escaped"]
