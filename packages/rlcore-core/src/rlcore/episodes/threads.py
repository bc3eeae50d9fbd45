"""Runs plain functions in threads outside the event loop.

asyncio's default pool is small, so sixty waiting tools would queue. `ThreadPoolExecutor` joins its threads at exit, so
one hung tool would hang the process. Here a call immediately gets an idle thread or a new one, and all threads are
daemons. A function that hangs keeps its threads, so the number of its abandoned calls is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar, cast

from rlcore.containment import Ended, error_text
from rlcore.errors import RlcoreError

P = ParamSpec("P")
R = TypeVar("R")

MOST_ABANDONED = 64
"""The most calls of one function that may still run although nobody waits for them."""
_IDLE_S = 10.0
"""Idle time in seconds after which a thread ends."""


class TooManyAbandoned(RlcoreError):
    """A function is not called, because too many of its earlier calls never ended."""


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
        # Yield so that the thread starts now. The interpreter's switch interval is longer than most calls, and
        # time.sleep(0) takes 70 µs on Linux, the slack of its timers.
        os.sched_yield()

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
_abandoned: Counter[Hashable] = Counter()
_lock = threading.Lock()


class Call:
    """One call of a function in a thread.

    Args:
        function: what is called; it decides which other calls count as its own
        work: does the call and reports its result; must not raise
    """

    def __init__(self, function: object, work: Callable[[], None]) -> None:
        self._key, self._work = _identity(function), work
        self._ended = self._counted = False

    def start(self) -> None:
        """Run the work in an idle thread or a new one. Returns immediately.

        Raises:
            TooManyAbandoned: `MOST_ABANDONED` calls of the function were abandoned and still run.
        """
        with _lock:
            count = _abandoned[self._key]
        if count >= MOST_ABANDONED:
            raise TooManyAbandoned(f"{count} earlier calls did not end in time and still run, so it is not called")
        _threads.submit(self._run)

    def abandon(self) -> None:
        """Stop waiting for the call. It counts until it ends."""
        with _lock:
            if not self._ended and not self._counted:
                self._counted = True
                _abandoned[self._key] += 1

    def _run(self) -> None:
        try:
            self._work()
        finally:
            with _lock:
                self._ended = True
                if self._counted:
                    _abandoned[self._key] -= 1


async def run_in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the function's result from a thread. Cancelling the call abandons the thread and discards its result.

    Raises:
        TooManyAbandoned: too many earlier calls of the function never ended.
    """
    return await run_as(function, functools.partial(function, *args, **kwargs))


async def run_as(owner: object, function: Callable[[], R]) -> R:
    """As `run_in_thread`, for a function that runs the code of ``owner``, to which abandoned calls are attributed."""
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
            result = context.run(function)
        except BaseException as error:
            # A future rejects StopIteration, and SystemExit in a thread must not end the process.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            tell(fail, error if plain else _ended(error))
        else:
            tell(succeed, result)

    call = Call(owner, work)
    call.start()
    try:
        return await future
    except asyncio.CancelledError:
        call.abandon()
        raise


def _ended(error: BaseException) -> Ended:
    made = Ended(error_text(error))
    made.__cause__ = error
    return made


def _identity(function: Any) -> Hashable:
    """What calls of the same function share, also those of different objects of a class."""
    while isinstance(function, functools.partial):  # asyncio.to_thread calls Context.run with the function
        is_context = isinstance(getattr(function.func, "__self__", None), contextvars.Context)
        function = function.args[0] if is_context and function.args else function.func
    kind: type = function if isinstance(function, type) else type(function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return f"{kind.__module__}.{kind.__qualname__}" if code is None else cast(Hashable, code)
