"""Ends a process with all that it has started, also if the run is killed.

A process that calls ``setsid`` leaves its group, so the signal that ends the group does not reach it. The supervisor is
the process that adopts it, is not confined itself, and cannot be signalled by what it supervises. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import importlib
import os
import select
import signal

TRANSPORT = "_rlcore_transport"
"""The package of the program that serves the parent, which has imported it."""
_END_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # of prctl
_OPEN_PROCESS = 434  # pidfd_open, which Python 3.8 lacks


def supervise() -> None:
    """Fork. The fork returns; this process waits for the end of the fork or of the run, and then ends everything."""
    libc = ctypes.CDLL(None, use_errno=True)
    pipe = vars(importlib.import_module(TRANSPORT))["parent_pipe"]
    libc.prctl(_ADOPT_ORPHANS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    # The kernel would kill the group, with the supervisor, before that has looked for what left the group.
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) & ~os.O_ASYNC)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, 0)
    stops = importlib.import_module(TRANSPORT + ".stops")
    supervisor = os.getpid()
    with stops.stops_held():  # a fork has the default handlers, which would end it
        child = os.fork()
        if child == 0:
            stops.leave_stops_to_main()
    if child == 0:
        os.close(pipe)  # with it, the agent could have the kernel signal the group with the rights of the run
        libc.prctl(_END_WITH_PARENT, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))
        if os.getppid() != supervisor:
            os._exit(1)
        return
    try:
        status = _waited(child, pipe, libc.syscall(_OPEN_PROCESS, child, 0))
        if os.WIFSIGNALED(status):  # the run reads from the exit status how the agent ended
            with contextlib.suppress(OSError):  # SIGKILL has no handler
                signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status))
    finally:
        os._exit(1)


def _waited(child: int, pipe: int, process: int) -> int:
    """Wait for the end of the child or of the run, kill all descendants, and return the status of the child."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in (pipe, process):  # the run sees the end of the child's connection
            with contextlib.suppress(OSError):
                os.close(descriptor)
    poll = select.poll()
    poll.register(pipe, 0)  # reports only the end
    poll.register(process, select.POLLIN)
    while not poll.poll():
        continue
    found = 0
    with contextlib.suppress(ChildProcessError):  # there are no more
        while True:
            for each in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            ended, status = os.waitpid(-1, 0)  # its children are now those of this process
            found = status if ended == child else found
    return found


def _children() -> list[int]:
    found: list[int] = []
    for path in glob.glob("/proc/self/task/*/children"):
        with open(path, encoding="ascii") as file:
            found += map(int, file.read().split())
    return found
