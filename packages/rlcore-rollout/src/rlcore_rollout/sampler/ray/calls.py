"""Calls of the actors of a Ray cluster, awaited on an event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from rlcore.errors import EngineError, RlcoreError

Answer = asyncio.Future["Future[Any]"]
"""Is done when a call has ended, with the future that has its result or its error."""


class WorkerLost(EngineError):
    """A worker that ended, does not answer, or has an engine that failed."""


def answer_to(reference: Any) -> Answer:
    """Return the answer to a call, which nothing cancels: the actor goes on when a caller no longer waits."""
    loop = asyncio.get_running_loop()
    answer: Answer = loop.create_future()

    def settle(done: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(answer.set_result, done)

    reference.future().add_done_callback(settle)
    return answer


async def result(answer: Answer, *, gone: asyncio.Future[str] | None = None, timeout_s: float | None = None) -> Any:
    """Return the result of a call.

    Args:
        answer: from `answer_to`
        gone: is done when the worker is lost, with the reason
        timeout_s: time for the answer

    Raises:
        WorkerLost: the worker, its machine or its engine is gone, or does not answer in time.
        EngineError: the call failed.
        UserError: the call raised it.
    """
    from ray.exceptions import RayError, RayTaskError

    awaited: set[asyncio.Future[Any]] = {answer} if gone is None else {answer, gone}
    await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        raise WorkerLost(gone.result() if gone is not None and gone.done() else f"no answer within {timeout_s:g} s")
    try:
        return answer.result().result()
    except RayTaskError as error:
        cause = getattr(error.cause, "client_exc", error.cause)  # of an argument that cannot be unpickled
        if isinstance(cause, RlcoreError):
            raise cause from None
        raise EngineError(f"{type(cause).__name__}: {cause}") from error
    except RayError as error:
        raise WorkerLost(str(error).strip().split("\n")[0]) from None


__all__ = ["Answer", "WorkerLost", "answer_to", "result"]
