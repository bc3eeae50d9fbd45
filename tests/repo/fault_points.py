"""Kill a process at a chosen file operation."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

CHANGES = frozenset({"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"})
"""Audit events of the interpreter in addition to ``open`` for writing. ``os.replace`` also raises ``os.rename``."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def killed_at(operation: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a child process that is killed before its file operation number ``operation``, counted from 1.

    Returns False if the work finished earlier.
    """
    child = os.fork()
    if child == 0:
        try:
            _kill_at(operation)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the work itself failed with status {status}"
    return status != 0


def _kill_at(operation: int) -> None:
    left = operation

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in CHANGES or (event == "open" and (arguments[2] or 0) & WRITING):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
