"""Runs an agent for one episode, and says whether its process can be used again."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import ctypes
import importlib
import inspect
import math
import os
import subprocess
import sys
import threading
import time
from typing import Any

from rlcore_harness.inside.given import Place, Policy, Task

TRANSPORT = "_rlcore_transport"
"""The package of the program that serves the parent, which has imported it."""
ENDING_S = 0.5
"""Time for the threads of an episode to end."""
ADOPT_ORPHANS = 36
"""``PR_SET_CHILD_SUBREAPER``."""
LOOK_S = 0.02
"""Time between looks whether a thread has ended."""
IDLE = getattr(getattr(concurrent.futures.thread, "_worker", None), "__code__", None)
"""What a thread of a pool executes while it waits for work, such as those of asyncio and of logging libraries."""
_loop: asyncio.AbstractEventLoop | None = None
"""Runs all episodes of an async agent: the clients that its module creates are bound to the first loop."""


def solve(target: str, task: dict[str, Any], place: dict[str, Any], folder: str) -> dict[str, Any]:
    """Call the agent's function.

    Args:
        target: ``module:function`` or ``path/file.py:function``
        task: arguments of `Task`
        place: fields of `Place`
        folder: the working directory of the episode

    Returns:
        ``reward``, ``error`` (an exception as plain data, or None) and ``left`` (what still runs; empty if nothing)
    """
    load_target = importlib.import_module(TRANSPORT + ".targets").load_target
    described = importlib.import_module(TRANSPORT + ".failures").described
    process, threads = os.getpid(), set(threading.enumerate())
    _adopt()
    os.chdir(folder)
    reward, error, function = None, None, None
    try:
        function = load_target(target)
        reward = _reward(_called(function, Task(**task), Policy(Place(**place))))
    except BaseException as raised:
        error = described(raised, getattr(getattr(function, "__code__", None), "co_filename", ""))
    if os.getpid() != process:
        os._exit(1)  # a fork of the agent, which must not answer
    os.chdir("/")  # the folder will be deleted
    return {"reward": reward, "error": error, "left": _left(threads)}


def unfit(target: str) -> str:
    """Why the agent's function cannot be called with a task and a policy; empty if it can."""
    function = importlib.import_module(TRANSPORT + ".targets").load_target(target)
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        return str(error)
    except ValueError:  # a builtin without a signature
        return ""
    return ""


def command(command: list[str], variables: dict[str, str], folder: str) -> int:
    """Run a program in a folder, and return its exit status, which is negative after a signal."""
    _adopt()
    environment = dict(os.environ, **variables)
    return subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


def _adopt() -> None:
    """Become the parent of processes whose parents end, so that `_left` sees them, and the program can kill them."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)


def _called(function: Any, task: Task, policy: Policy) -> Any:
    global _loop
    answer = function(task, policy)
    if not inspect.isawaitable(answer):
        return answer
    if _loop is None:
        _loop = asyncio.new_event_loop()
    asyncio.set_event_loop(_loop)
    return _loop.run_until_complete(answer)


def _reward(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"the agent must return its reward as a finite number, or None, not {value!r:.80}")
    return float(value)


def _is_idle(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is IDLE


def _left(threads: set[threading.Thread]) -> str:
    """What the agent left running."""
    for thread in set(threading.enumerate()) - threads:
        until = time.monotonic() + ENDING_S
        while thread.is_alive() and not _is_idle(thread):
            if time.monotonic() > until:
                return f"the thread {thread.name!r:.80}"
            thread.join(LOOK_S)
    if _loop is not None and asyncio.all_tasks(_loop):
        return "a task of asyncio"
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended
            continue
    except ChildProcessError:
        return ""
    return "a process"
