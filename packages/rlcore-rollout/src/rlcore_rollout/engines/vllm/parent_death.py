"""Processes that end with their parent, from their first instruction on. Imports nothing heavy.

A process that is killed cannot end its children. vLLM's processes would then keep all of their memory.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import spawn
from typing import Any

PR_SET_PDEATHSIG = 1
"""The option of Linux's ``prctl`` with which the kernel sends a signal when the thread that started a process ends."""
STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that terminals and batch systems send to all processes of a job."""


@contextlib.contextmanager
def children_follow() -> Iterator[None]:
    """Processes that `multiprocessing` spawns inside the block, and their own, end when their parent ends.

    The thread that spawns them must live as long as they should.
    """
    command = spawn.get_command_line
    spawn.get_command_line = lambda **given: _following(command(**given))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # the processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        spawn.get_command_line = command


def follow(parent: int) -> None:
    """End this process with the parent, and leave signals to the parent, which finishes its step first."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(1)
    with contextlib.suppress(OSError):  # a session leader receives no signals from a terminal
        os.setpgid(0, 0)
    spawn.get_command_line = _of_grandchildren(spawn.get_command_line)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        signal.signal(signal.SIGURG, lambda *_: None)
        threading.Thread(target=_obey, args=(parent,), name="rlcore-signals", daemon=True).start()


def _obey(parent: int) -> None:
    """Act on SIGTERM if the parent sends it, as `multiprocessing` does, and on no other signal to stop."""
    while True:
        told = signal.sigwaitinfo(STOPS)
        if (told.si_pid, told.si_signo) != (parent, signal.SIGTERM):
            continue
        if callable(signal.getsignal(signal.SIGTERM)):
            _thread.interrupt_main(signal.SIGTERM)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)  # it may wait in a system call
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def _following(command: list[str]) -> list[str]:
    """The command line of a child, which first follows this process. It does not have its ``sys.path`` yet."""
    place = command.index("-c") + 1
    before = f"import runpy; runpy.run_path({__file__!r})['follow']({os.getpid()}); "
    return [*command[:place], before + command[place], *command[place + 1 :]]


def _of_grandchildren(command: Any) -> Any:
    return lambda **given: _following(command(**given))
