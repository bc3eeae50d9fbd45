"""Coroutines run from blocking code, with and without a running event loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TypeVar

import pytest
from rlcore import event_loop
from rlcore.episodes.rewards import SelectedReward
from rlcore.event_loop import EventLoop
from rlcore.session.rescoring import Plan, rescored
from rlcore.testing import check_environment, check_reward, make_trajectory
from rlcore.types import Group, Message, Observation, Step, Task

Value = TypeVar("Value")
COLOUR = contextvars.ContextVar("COLOUR", default="none")


def plainly(call: Callable[[], Value]) -> Value:
    return call()


def inside_a_loop(call: Callable[[], Value]) -> Value:
    async def main() -> Value:
        return call()

    return asyncio.run(main())


@pytest.fixture(params=[plainly, inside_a_loop])
def where(request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], object]:
    """Calls a function without and with a running event loop."""
    return request.param  # type: ignore[no-any-return]


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_result_of_a_coroutine(where: Callable[..., object]) -> None:
    assert where(lambda: event_loop.run(double(3))) == 6


def test_all_calls_share_one_loop(where: Callable[..., object]) -> None:
    async def current() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def twice() -> bool:
        with EventLoop() as loop:
            return loop.run(current()) is loop.run(current())

    assert where(twice)


def test_exceptions_reach_the_caller(where: Callable[..., object]) -> None:
    async def fail() -> None:
        raise LookupError("missing")

    with pytest.raises(LookupError, match="missing"):
        where(lambda: event_loop.run(fail()))


def test_context_variables_of_the_caller_are_visible(where: Callable[..., object]) -> None:
    async def read() -> str:
        return COLOUR.get()

    def call() -> str:
        COLOUR.set("green")
        return event_loop.run(read())

    assert where(call) == "green"


def test_nothing_is_left_of_a_loop(where: Callable[..., object]) -> None:
    before = set(threading.enumerate())

    def call() -> None:
        with EventLoop() as loop:
            loop.run(double(1))
        loop.close()

    where(call)
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end meanwhile


def test_loop_of_the_caller_stays_the_current_one() -> None:
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    try:
        event_loop.run(double(1))
        assert asyncio.get_event_loop_policy().get_event_loop() is own
    finally:
        asyncio.set_event_loop(None)
        own.close()


def test_interrupt_cancels_a_coroutine_in_another_thread() -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
            await asyncio.sleep(60)
        finally:
            ended.set()

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                event_loop.run(wait())
        finally:
            signal.signal(signal.SIGINT, before)

    started = time.monotonic()
    asyncio.run(main())
    assert ended.is_set()
    assert time.monotonic() - started < 10


def test_stored_trajectories_are_scored_again_inside_a_loop(where: Callable[..., object]) -> None:
    task = Task(id="t", messages=(Message(role="user", content="1+1?"),))
    group = Group(task=task, trajectories=(make_trajectory("2"),))

    async def always(trajectory: object, task: object) -> float:
        return 0.5

    reward = SelectedReward(id="always", weight=1.0, scope="trajectory", function=always, minimum=0.0, maximum=1.0)
    how = Plan(rewards={"": (reward,)}, success=1.0, timeout_s=10.0, out=None)
    ((_, now),) = where(lambda: list(rescored([group], how)))  # type: ignore[misc]
    assert now.rewards_G == (0.5,)


class Silent:
    def reset(self, task: Task, *, seed: int) -> Observation:
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        return Step(terminated=True)

    def close(self) -> None: ...


async def never(trajectory: object, task: object) -> float:
    return 0.0


def test_conformance_suite_runs_inside_a_loop(where: Callable[..., object]) -> None:
    where(lambda: check_reward(never))
    task = Task(id="t", messages=(Message(role="user", content="1+1?"),))
    where(lambda: check_environment(Silent, tasks=[task], needs_oracle=False))


def test_submitted_coroutines_run_while_the_caller_does_other_things() -> None:
    with EventLoop() as loop:
        first, second = loop.submit(double(1)), loop.submit(double(2))
        assert (second.result(10), first.result(10)) == (4, 2)


def test_closing_settles_what_was_submitted() -> None:
    loop = EventLoop()
    waiting = [loop.submit(asyncio.sleep(60)) for _ in range(3)]
    loop.close()
    assert all(isinstance(one.exception(), CancelledError) for one in waiting)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(double(1))


def test_a_coroutine_cannot_wait_for_another_one_of_its_loop() -> None:
    async def wait(loop: EventLoop) -> None:
        loop.run(double(1))

    with EventLoop() as loop, pytest.raises(RuntimeError, match="await the coroutine"):
        loop.run(wait(loop))
