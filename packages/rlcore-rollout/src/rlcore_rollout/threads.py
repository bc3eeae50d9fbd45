"""One thread per call of ``asyncio.to_thread``. The process does not wait for these threads when it ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from rlcore.episodes import threads
from rlcore.plugin_calls import error_text

P = ParamSpec("P")
R = TypeVar("R")


async def run_to_end(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a call in a thread, as ``asyncio.to_thread`` does. A cancellation waits until the call has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait({running})


class _Future(Future[R]):
    """A future whose cancellation abandons a call that runs."""

    call: threads.Call | None = None

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if not cancelled and not self.done() and self.call is not None:
            self.call.abandon()
        return cancelled


class GrowingThreads(ThreadPoolExecutor):
    """The default executor of an event loop, over the threads of `rlcore.episodes.threads`.

    Environments call ``asyncio.to_thread``. Its own pool has six threads on two cores: sixty waiting environments would
    queue, and a hung one would prevent the process from ending.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run the call in an idle thread, or in a new one.

        Raises:
            TooManyAbandoned: too many earlier calls of the function never ended.
        """
        future: _Future[R] = _Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error if isinstance(error, Exception) else RuntimeError(error_text(error)))

        future.call = threads.Call(functools.partial(fn, *args), work)
        future.call.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: the threads are shared by the whole process."""
