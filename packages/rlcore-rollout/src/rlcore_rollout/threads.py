"""Gives ``asyncio.to_thread`` as many threads as there are calls, none of which is waited for at the end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from rlcore import threads

P = ParamSpec("P")
R = TypeVar("R")


class GrowingThreads(ThreadPoolExecutor):
    """The default executor of an event loop, over the threads of `rlcore.threads`.

    Environments of others call ``asyncio.to_thread``, whose own pool has six threads on two cores: sixty waiting
    environments would queue, and a hung one would keep the process from ending.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run the call in an idle thread, or in a new one."""
        future: Future[R] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        threads.submit(work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to end: the threads are everybody's."""
