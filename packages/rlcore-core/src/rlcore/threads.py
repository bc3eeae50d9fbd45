"""Runs plain functions beside the event loop, each call in a thread of its own choosing.

asyncio's default pool has a handful of threads, so sixty waiting tools would queue; and `ThreadPoolExecutor` joins its
threads at exit, so one hung tool would hang the process. Here a call takes an idle thread or a new one, at once, and
all threads are daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_IDLE_S = 10.0
"""A thread without work for this long ends."""


class _Threads:
    """Daemon threads that grow with the work and end when idle."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """How many threads wait for work that nobody has promised them yet."""

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            start = self._free == 0
            if not start:
                self._free -= 1
        if start:
            threading.Thread(target=self._serve, args=(work,), name="rlcore", daemon=True).start()
        else:
            self._work.put(work)
        # The thread starts now instead of after the interpreter's switch interval, which is longer than most calls.
        time.sleep(0)

    def _serve(self, work: Callable[[], None]) -> None:
        while True:
            work()
            del work  # an idle thread holds nothing alive
            with self._lock:
                self._free += 1
            try:
                work = self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._free > 0:
                        self._free -= 1
                        return
                work = self._work.get()  # promised to this thread or another one between the two lines above


_threads = _Threads()


def submit(work: Callable[[], None]) -> None:
    """Run work, which must not raise, in an idle thread or a new one; returns at once."""
    _threads.submit(work)


async def run_in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The function's result, from a thread. Cancelling the call leaves the thread behind and drops its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def succeed(result: R) -> None:
        if not future.done():
            future.set_result(result)

    def fail(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def tell(answer: Callable[..., None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(answer, value)

    def work() -> None:
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as error:
            # A future refuses StopIteration, and the SystemExit of a thread is no reason to end the process.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            tell(fail, error if plain else RuntimeError(repr(error)))
        else:
            tell(succeed, result)

    submit(work)
    return await future
