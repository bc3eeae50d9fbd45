"""Threads for plain functions: how many a function that hangs may take."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rlcore.episodes.calls import CallFailed, call
from rlcore.episodes.threads import MOST_ABANDONED, TooManyAbandoned, run_as, run_in_thread
from rlcore.episodes.tool import tool
from rlcore.errors import ToolFailure


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What hanging functions wait for; set at the end."""
    event = threading.Event()
    yield event
    event.set()


def test_tool_that_hangs_takes_a_limited_number_of_threads(released: threading.Event) -> None:
    @tool(timeout_s=0.01)
    def hang() -> str:
        """Hang."""
        released.wait(60)
        return "late"

    @tool
    def answer() -> str:
        """Answer."""
        return "here"

    async def run() -> list[Any]:
        calls = [await asyncio.gather(hang.call({}), return_exceptions=True) for _ in range(MOST_ABANDONED + 50)]
        assert (await answer.call({})).text == "here"
        return [one for (one,) in calls]

    before = threading.active_count()
    outcomes = asyncio.run(run())
    assert threading.active_count() - before <= MOST_ABANDONED + 2
    assert all("did not answer" in outcome.text for outcome in outcomes[:MOST_ABANDONED])
    refused = outcomes[MOST_ABANDONED:]
    assert len(refused) == 50
    assert all(isinstance(outcome, ToolFailure) for outcome in refused)
    assert "64 earlier calls did not end in time" in str(refused[0])


def test_calls_are_accepted_again_once_the_abandoned_ones_end() -> None:
    released = threading.Event()

    def hang() -> int:
        released.wait(60)
        return 1

    async def run() -> int:
        for _ in range(MOST_ABANDONED):
            with pytest.raises(CallFailed):
                await call("it", hang, timeout_s=0.005, threaded=True)
        with pytest.raises(CallFailed) as caught:
            await call("it", hang, timeout_s=5, threaded=True)
        assert caught.value.timed_out
        released.set()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            try:
                return await run_in_thread(hang)
            except TooManyAbandoned:
                await asyncio.sleep(0.01)
        raise AssertionError("no call was accepted")

    assert asyncio.run(run()) == 1


def test_many_calls_that_end_are_not_limited() -> None:
    def work(number: int) -> int:
        time.sleep(0.005)
        return number

    async def run() -> list[int]:
        return list(await asyncio.gather(*(run_in_thread(work, number) for number in range(4 * MOST_ABANDONED))))

    assert asyncio.run(run()) == list(range(4 * MOST_ABANDONED))


def test_objects_of_a_class_share_the_limit(released: threading.Event) -> None:
    class Tool:
        def __call__(self) -> None:
            released.wait(60)

    async def run(make: Callable[[], Any]) -> None:
        for _ in range(MOST_ABANDONED):
            with pytest.raises(CallFailed):
                await call("it", make(), timeout_s=0.005, threaded=True)
        with pytest.raises(CallFailed, match="earlier calls"):
            await call("it", make(), timeout_s=5, threaded=True)

    asyncio.run(run(Tool))


def test_short_calls_do_not_wait_for_a_call_that_blocks() -> None:
    others = threading.Event()

    async def run() -> list[object]:
        blocked = run_as("blocked", lambda: others.wait(10), at_once=False)
        short = [run_as("short", lambda number=number: number, at_once=False) for number in range(50)]
        tasks = [asyncio.ensure_future(each) for each in (blocked, *short)]
        found = await asyncio.gather(*tasks[1:])
        others.set()
        return [await tasks[0], *found]

    assert asyncio.run(run()) == [True, *range(50)]
