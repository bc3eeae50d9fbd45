"""Runs plain functions in threads outside the event loop.

asyncio's default pool is small, so sixty waiting tools would queue. `ThreadPoolExecutor` joins its threads at exit, so
one hung tool would hang the process. Here a call immediately gets an idle thread or a new one, and all threads are
daemons.
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
"""Idle time in seconds after which a thread ends."""


class _Threads:
    """Daemon threads that are started on demand and end when idle."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """Number of idle threads without assigned work."""

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            start = self._free == 0
            if not start:
                self._free -= 1
        if start:
            threading.Thread(target=self._serve, args=(work,), name="rlcore", daemon=True).start()
        else:
            self._work.put(work)
        # Yield so that the thread starts now. The interpreter's switch interval is longer than most calls.
        time.sleep(0)

    def _serve(self, work: Callable[[], None]) -> None:
        while True:
            work()
            del work  # an idle thread keeps no object alive
            with self._lock:
                self._free += 1
            try:
                work = self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._free > 0:
                        self._free -= 1
                        return
                work = self._work.get()  # work was assigned to this thread or another one after the timeout


_threads = _Threads()


def submit(work: Callable[[], None]) -> None:
    """Run work, which must not raise, in an idle thread or a new one. Returns immediately."""
    _threads.submit(work)


async def run_in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the function's result from a thread. Cancelling the call abandons the thread and discards its result."""
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
        with contextlib.suppress(RuntimeError):  # the loop has closed, so no caller is waiting
            loop.call_soon_threadsafe(answer, value)

    def work() -> None:
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as error:
            # A future rejects StopIteration, and SystemExit in a thread must not end the process.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            tell(fail, error if plain else RuntimeError(repr(error)))
        else:
            tell(succeed, result)

    submit(work)
    return await future
