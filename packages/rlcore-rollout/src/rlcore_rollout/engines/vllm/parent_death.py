"""Processes that end with their parent, from their first instruction on. Imports nothing heavy.

A process that is killed cannot end its children. vLLM's processes would then keep all of their memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import spawn
from typing import Any

PR_SET_PDEATHSIG = 1
"""The option of Linux's ``prctl`` with which the kernel sends a signal when the thread that started a process ends."""


@contextlib.contextmanager
def children_follow() -> Iterator[None]:
    """Processes that `multiprocessing` spawns inside the block, and their own, end when their parent ends.

    The thread that spawns them must live as long as they should.
    """
    command = spawn.get_command_line
    spawn.get_command_line = lambda **given: _following(command(**given))
    try:
        yield
    finally:
        spawn.get_command_line = command


def follow(parent: int) -> None:
    """End this process with the parent, and leave Ctrl-C to the parent, which finishes its step first."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(1)
    with contextlib.suppress(OSError):  # a session leader receives no signals from a terminal
        os.setpgid(0, 0)
    spawn.get_command_line = _of_grandchildren(spawn.get_command_line)


def _following(command: list[str]) -> list[str]:
    """The command line of a child, which first follows this process. It does not have its ``sys.path`` yet."""
    place = command.index("-c") + 1
    before = f"import runpy; runpy.run_path({__file__!r})['follow']({os.getpid()}); "
    return [*command[:place], before + command[place], *command[place + 1 :]]


def _of_grandchildren(command: Any) -> Any:
    return lambda **given: _following(command(**given))
