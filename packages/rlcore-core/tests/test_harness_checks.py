from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from rlcore.episodes.context import EpisodeContext
from rlcore.testing import check_environment
from rlcore.types import Message, Step, Task

TASK = Task(id="t", messages=(Message(role="user", content="Well?"),))


class Asks:
    """Asks twice, and ends."""

    kept: list[Any] = []

    async def run(self, task: Task, *, policy: Any, seed: int, context: EpisodeContext) -> Any:
        for _ in range(2):
            await policy.respond(task.messages)
        return Step(terminated=True)

    async def close(self) -> None:
        pass


class NeverAsks(Asks):
    async def run(self, task: Task, **_: Any) -> Any:
        return Step(terminated=True)


class DoesNotEnd(Asks):
    async def run(self, task: Task, **given: Any) -> Any:
        await super().run(task, **given)
        return Step()


class AsksForever(Asks):
    async def run(self, task: Task, *, policy: Any, seed: int, context: EpisodeContext) -> Any:
        while True:
            await policy.respond(task.messages)


class FailsAtSilence(Asks):
    async def run(self, task: Task, *, policy: Any, seed: int, context: EpisodeContext) -> Any:
        await policy.respond(task.messages)
        raise ValueError("empty")


class LeavesTasks(Asks):
    async def run(self, task: Task, **given: Any) -> Any:
        self.kept.append(asyncio.ensure_future(asyncio.sleep(600)))
        return await super().run(task, **given)


@pytest.mark.parametrize("harness", [Asks, AsksForever])
def test_sound_harness_passes(harness: Callable[[], Any]) -> None:
    check_environment(harness, tasks=[TASK])


@pytest.mark.parametrize(
    ("harness", "sentence"),
    [
        (NeverAsks, "does not ask the policy"),
        (DoesNotEnd, "does not end the episode"),
        (FailsAtSilence, "ValueError: empty"),
        (LeavesTasks, "leaks 8 asyncio tasks"),
    ],
)
def test_violations_are_listed(harness: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_environment(harness, tasks=[TASK])
