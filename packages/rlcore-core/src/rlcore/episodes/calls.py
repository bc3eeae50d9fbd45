"""Calls plugin code, sync or async, with a deadline. Every failure is reported as one exception type."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
import traceback
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Self, TypeVar

from rlcore.episodes import threads
from rlcore.episodes.threads import TooManyAbandoned, run_as
from rlcore.errors import EnvironmentFailure
from rlcore.plugin_calls import Ended, error_text, is_interrupt
from rlcore.redaction import redact

Value = TypeVar("Value")

LONGEST_DESCRIPTION = 2000


class CallFailed(Exception):
    """A call failed: it raised an exception, or its deadline passed, or those of earlier calls (``timed_out``)."""

    def __init__(self, description: str, *, timed_out: bool = False):
        self.timed_out = timed_out
        super().__init__(description)


def describe(error: BaseException, function: object = None) -> str:
    """Return the type, message and location of an exception in one line.

    The location is that of ``function`` if the call itself failed. A failure that rlcore reports for code elsewhere has
    its location in the message.
    """
    text = error_text(error)
    if isinstance(error, Ended) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, EnvironmentFailure) and _raised_by(error).startswith("rlcore"):
        return redact(text)[:LONGEST_DESCRIPTION]
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename not in (__file__, threads.__file__):
        text += f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno} in {frames[-1].name})"
    elif place := place_of(function):
        text += f" ({place.rpartition('/')[2]})"
    return redact(text)[:LONGEST_DESCRIPTION]


def _raised_by(error: BaseException) -> str:
    """The module that raised an exception; empty if it was not raised."""
    module = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
    return module


def place_of(function: object) -> str | None:
    """Return ``file:line`` of a function, or of an object's ``__call__``; None if it is not Python code."""
    called = function if hasattr(function, "__code__") else getattr(function, "__call__", None)  # noqa: B004
    code = getattr(called, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None


class Deadline:
    """Like ``asyncio.timeout_at``, at less than half the cost: every turn waits within two of them.

    Args:
        when: on the clock of ``time.monotonic``, as that of the event loop

    Raises:
        TimeoutError: at the end of the block, which the deadline cancelled.
    """

    def __init__(self, when: float) -> None:
        self.expired = False
        self._when = when

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._timer = loop.call_at(self._when, self._expire)
        return self

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._timer.cancel()
        # A cancellation by somebody else at the same time is not the deadline's.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


async def call(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    timeout_s: float,
    until: float = math.inf,
    threaded: bool = False,
    at_once: bool = True,
    **keywords: Any,
) -> Any:
    """Return the result of ``function``, awaited if it is awaitable.

    ``until`` is a second deadline, on the clock of ``time.monotonic``. A ``threaded`` plain function runs in a thread,
    which continues in the background when its deadline passes. Without ``at_once``, the thread may start a few
    milliseconds later. Any error in the function raises `CallFailed`, including ``SystemExit`` and a cancellation by
    the function itself. Only a cancellation by the caller propagates.
    """
    deadline = min(time.monotonic() + timeout_s, until)  # the clock of the event loop, read without a system call
    scope: Deadline | None = None  # created where the call waits, which most do not
    try:
        if threaded and not is_async(function):
            with (scope := Deadline(deadline)):
                answer = await run_as(function, partial(function, *arguments, **keywords), at_once=at_once)
                return await answer if inspect.isawaitable(answer) else answer
        answer = function(*arguments, **keywords)
        if isinstance(answer, types.CoroutineType):
            try:
                awaited = answer.send(None)
            except StopIteration as finished:  # at once, as most do: no timer was needed
                return finished.value
            with (scope := Deadline(deadline)):
                return await _continued(answer, awaited)
        if not inspect.isawaitable(answer):
            return answer
        with (scope := Deadline(deadline)):
            return await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CallFailed(f"{name} cancelled itself") from error
    except TooManyAbandoned as error:
        raise CallFailed(f"{name} failed: {error}", timed_out=True) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        if isinstance(error, TimeoutError) and scope is not None and scope.expired:
            limit = f"{timeout_s:g} s" if deadline < until else "the time limit of the trajectory"
            raise CallFailed(f"{name} did not answer within {limit}", timed_out=True) from error
        raise CallFailed(f"{name} raised {describe(error, function)}") from error


@types.coroutine
def _continued(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Return the result of a coroutine that waits for ``awaited``."""
    while True:
        try:
            yield awaited
        except BaseException as error:
            advance = partial(coroutine.throw, error)
        else:
            advance = partial(coroutine.send, None)
        try:
            awaited = advance()
        except StopIteration as finished:
            return finished.value


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling the function returns a coroutine immediately."""
    if isinstance(function, (types.FunctionType, types.MethodType)):  # as most are
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def together(*coroutines: Coroutine[Any, Any, Value]) -> list[Value]:
    """Return the results of all coroutines like `asyncio.gather`.

    A single one runs in the task of the caller. Its own task would cost time, and queue behind those of others.
    """
    if len(coroutines) == 1:
        return [await coroutines[0]]
    return await asyncio.gather(*coroutines)
