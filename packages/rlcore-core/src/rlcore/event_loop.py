"""Run coroutines from blocking code, also where an event loop is already running, as in Jupyter."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, Self, TypeVar, cast

Value = TypeVar("Value")


class EventLoop:
    """One event loop for any number of blocking calls, like `asyncio.Runner`. Close it at the end.

    A thread cannot run a second event loop inside a running one. In a notebook or a coroutine, the coroutine therefore
    runs in a helper thread, and the caller waits for it.

    Args:
        threads: runs the calls of ``asyncio.to_thread``, in place of asyncio's own pool
    """

    def __init__(self, threads: Executor | None = None) -> None:
        # With a factory, the loop does not become the current one of this thread, which belongs to the caller.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        if threads is not None:
            # asyncio requires a ThreadPoolExecutor
            self._runner.get_loop().set_default_executor(cast(Any, threads))

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """The result of a coroutine. An interruption of the caller cancels it."""
        if not _loop_is_running():
            return self._runner.run(coroutine)
        tasks: list[asyncio.Task[Any]] = []

        async def observed() -> Value:
            if (task := asyncio.current_task()) is not None:
                tasks.append(task)
            return await coroutine

        def cancel() -> None:
            self._runner.get_loop().call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

        return _in_a_thread(lambda: self._runner.run(observed()), cancel)

    def close(self) -> None:
        """Cancel what still runs and close the loop. A second call does nothing."""
        if _loop_is_running():
            _in_a_thread(self._runner.close)
        else:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """The result of a coroutine, like `asyncio.run`, also where an event loop is running."""
    with EventLoop() as loop:
        return loop.run(coroutine)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_a_thread(function: Callable[[], Value], cancel: Callable[[], None] = lambda: None) -> Value:
    """The result of a function, called in a new thread with the caller's context variables."""
    result: Future[Value] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result.set_result(context.run(function))
        except BaseException as error:  # also those that are no Exception belong to the caller
            result.set_exception(error)

    thread = threading.Thread(target=work, name="rlcore-event-loop", daemon=True)
    thread.start()
    try:
        return result.result()
    except BaseException:
        if not result.done():  # the caller was interrupted
            cancel()
        raise
    finally:
        thread.join()
