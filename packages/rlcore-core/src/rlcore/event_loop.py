"""Run coroutines from blocking code, also where an event loop is already running, as in Jupyter."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Executor, Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, cast

Value = TypeVar("Value")
NOTICED_S = 1.0
"""Longest time in seconds until a signal is handled while a caller waits."""


class EventLoop:
    """One event loop in a thread, for any number of calls from other threads. Close it at the end.

    Args:
        threads: runs the calls of ``asyncio.to_thread``, in place of asyncio's own pool
    """

    def __init__(self, threads: Executor | None = None) -> None:
        # With a factory, the loop does not become the current one of this thread, which belongs to the caller.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        if threads is not None:
            self._loop.set_default_executor(cast(Any, threads))  # asyncio requires a ThreadPoolExecutor
        self._tasks: dict[Future[Any], asyncio.Task[Any]] = {}
        self._lock, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._serve, name="rlcore-event-loop", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Value]) -> Future[Value]:
        """Start a coroutine with the caller's context variables, and return its future result.

        If the loop is closed first, the result is a ``concurrent.futures.CancelledError``.

        Raises:
            RuntimeError: the loop is closed.
        """
        result: Future[Value] = Future()
        context = contextvars.copy_context()

        def settle(task: asyncio.Task[Value]) -> None:
            del self._tasks[result]
            if task.cancelled():
                result.set_exception(CancelledError())
            elif (error := task.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())

        def start() -> None:
            if not result.set_running_or_notify_cancel():
                coroutine.close()
                return
            self._tasks[result] = task = self._loop.create_task(coroutine, context=context)
            task.add_done_callback(settle)

        with self._lock:  # what is started before the end of the loop is also cancelled by it
            if self._closed:
                coroutine.close()
                raise RuntimeError("the event loop is closed")
            self._loop.call_soon_threadsafe(start)
        return result

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Return the result of a coroutine. An interruption of the caller cancels it, and waits until it has ended."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a coroutine of an event loop cannot wait for another one of it: await the coroutine")
        result = self.submit(coroutine)
        try:
            wait_until_done(result)
            return result.result()
        except BaseException:
            if not result.done():  # the caller was interrupted
                self._loop.call_soon_threadsafe(self._cancel, result)
                wait([result])
            raise

    def cancel(self) -> None:
        """Cancel everything that was submitted, and wait until it has ended."""

        async def others() -> None:
            tasks = [task for task in self._tasks.values() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(others())

    def _cancel(self, result: Future[Any]) -> None:
        if (task := self._tasks.get(result)) is not None:
            task.cancel()

    def _serve(self) -> None:
        """Run the loop until `close`, and then cancel what still runs."""
        with self._runner:
            while not self._closed:
                # A task that raises KeyboardInterrupt or SystemExit leaves the loop, which then reports it as a result.
                with suppress(KeyboardInterrupt, SystemExit):
                    self._loop.run_forever()

    def close(self) -> None:
        """Cancel what still runs and close the loop. A second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def wait_until_done(future: Future[Any]) -> None:
    """Wait for a future. Python runs no handler of a signal that arrives just before a thread begins to wait."""
    while not future.done():
        wait([future], timeout=NOTICED_S)


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Return the result of a coroutine, like `asyncio.run`, also where an event loop is running."""
    with EventLoop() as loop:
        return loop.run(coroutine)


__all__ = ["EventLoop", "run", "wait_until_done"]
