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
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar, cast

from rlcore.errors import RlcoreError
from rlcore.plugin_calls import Ended, error_text

P = ParamSpec("P")
R = TypeVar("R")

MOST_ABANDONED = 64
"""The most calls of one function that may still run although nobody waits for them."""
_START_S = 0.0003
"""The longest time in seconds to wait until a thread has started."""
_IDLE_S = 10.0
"""Idle time in seconds after which a thread ends."""


class TooManyAbandoned(RlcoreError):
    """A function is not called, because too many of its earlier calls never ended."""


class _Threads:
    """Daemon threads that are started on demand and end when idle.

    Work that may wait a little wakes a thread only if none is about to look for work. A thread that takes work while
    more is waiting wakes another one first, so a call that blocks delays no other, and many short calls share a thread.
    """

    def __init__(self) -> None:
        self._work: deque[tuple[Callable[[], None], threading.Lock | None]] = deque()
        """Each with a lock that is released when its thread has started, if somebody waits for that."""
        self._lock = threading.Lock()
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()  # faster than a semaphore
        self._idle = 0
        """Number of threads that wait for a signal and have not been sent one."""
        self._looking = 0
        """Number of threads that were started or woken and have not looked for work yet."""

    def submit(self, work: Callable[[], None], *, at_once: bool) -> None:
        started = None
        if at_once:
            started = threading.Lock()
            started.acquire()
        entry = (work, started)
        with self._lock:
            self._work.append(entry)
            start = self._call_thread(at_once=at_once)
        if start:
            try:
                self._start()
            except BaseException:
                with self._lock, contextlib.suppress(ValueError):  # another thread may have taken it
                    self._work.remove(entry)
                raise
        if started is not None:
            # Otherwise the thread waits for the interpreter until this one is idle, or for its switch interval.
            started.acquire(timeout=_START_S)

    def _call_thread(self, *, at_once: bool = False) -> bool:
        """Wake a thread, unless one is about to look for work anyway. Returns whether a new one must be started."""
        if self._looking and not at_once:
            return False
        self._looking += 1
        if not self._idle:
            return True
        self._idle -= 1
        self._signals.put(None)
        return False

    def _start(self) -> None:
        try:
            threading.Thread(target=self._serve, name="rlcore", daemon=True).start()
        except BaseException:  # the system allows no further thread
            with self._lock:
                self._looking -= 1
            raise

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._looking -= 1
                work, started = self._work.popleft() if self._work else (None, None)
                start = bool(self._work) and self._call_thread()
                if work is None:
                    self._idle += 1
            if start:
                with contextlib.suppress(RuntimeError):  # then this thread continues with the rest itself
                    self._start()
            if work is not None:
                if started is not None:
                    started.release()
                work()
                del work  # an idle thread keeps no object alive
                with self._lock:
                    self._looking += 1
                continue
            try:
                self._signals.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        return
                self._signals.get()  # it was sent after the timeout


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

    def start(self, *, at_once: bool = True) -> None:
        """Run the work in an idle thread or a new one, and return immediately.

        Args:
            at_once: whether the thread gets the processor first. Otherwise it starts within a few milliseconds, and
                many short calls cost less.

        Raises:
            TooManyAbandoned: `MOST_ABANDONED` calls of the function were abandoned and still run.
        """
        with _lock:
            count = _abandoned[self._key]
        if count >= MOST_ABANDONED:
            raise TooManyAbandoned(f"{count} earlier calls did not end in time and still run, so it is not called")
        _threads.submit(self._run, at_once=at_once)

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


async def run_as(owner: object, function: Callable[[], R], *, at_once: bool = True) -> R:
    """As `run_in_thread`, for a function that runs the code of ``owner``, to which abandoned calls are attributed.

    ``at_once`` is as in `Call.start`.
    """
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
    call.start(at_once=at_once)
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
