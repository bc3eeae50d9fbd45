"""The conformance checks for a `Harness`: an environment that runs an agent with a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from rlcore.errors import EpisodeEnded
from rlcore.harnesses import Harness
from rlcore.testing.calling import Findings, call
from rlcore.testing.episodes import LONGEST_EPISODE, Stage, expect_valid, is_end
from rlcore.testing.leaks import growth
from rlcore.types import ChatCompletion, FrozenDict, Message, Response, Step, Stop, Task, ToolSchema
from rlcore.types.checking import flaw_in_step


class SilentPolicy:
    """A `rlcore.harnesses.EpisodePolicy` that answers with empty messages, until its turns are used up.

    Args:
        max_turns: the number of answers
    """

    def __init__(self, max_turns: int) -> None:
        self.max_turns: int | None = max_turns
        self.requests = 0
        self._numbers = count()
        self._turns: set[int] = set()

    @property
    def turns(self) -> int:
        """As `EpisodePolicy.turns`."""
        return len(self._turns)

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Iterable[bytes] = (),
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Response:
        """As `EpisodePolicy.respond`."""
        self.requests += 1
        await asyncio.sleep(0)
        if self.max_turns is not None and self.turns >= self.max_turns:
            raise EpisodeEnded(f"the policy has answered {self.max_turns} times", Stop.MAX_TURNS)
        turn = next(self._numbers)
        self._turns.add(turn)
        return Response(turn, ChatCompletion(message=Message(role="assistant"), finish_reason="stop"))

    def withdraw(self, turn: int) -> None:
        """As `EpisodePolicy.withdraw`."""
        self._turns.discard(turn)

    def reward(self, value: float, *, turn: int | None = None) -> None:
        """As `EpisodePolicy.reward`."""

    def role(self, name: str) -> SilentPolicy:
        """This policy, which plays all roles."""
        return self


class HarnessChecks:
    """Checks one harness, and records what it violates.

    Args:
        stage: how to create it
        together: number of concurrent episodes
        tasks: those of the episodes
        findings: collects the violations
    """

    def __init__(self, stage: Stage, together: int, tasks: Sequence[Task], findings: Findings) -> None:
        self._stage, self._together, self._tasks, self._findings = stage, together, tasks, findings

    async def run(self) -> None:
        """Run all checks."""
        expect, attempt = self._findings.expect, self._findings.attempt
        if not expect(bool(self._tasks), "there is no task to run the checks on"):
            return
        for task in self._tasks:
            await attempt(f"silence on task {task.id!r}", self._silence_ends(task))
        await attempt("a policy that does not answer", self._refusals_end(self._tasks[0]))
        await attempt("close", self._close_comes_before_the_episode())
        await attempt(f"{self._together} concurrent episodes", self._episodes_leak_nothing())

    async def _silence_ends(self, task: Task) -> None:
        """An assistant that says nothing reaches an end, and was asked."""
        policy = SilentPolicy(LONGEST_EPISODE)
        try:
            step = await self._episode(task, policy)
        except Exception:
            if policy.requests <= policy.turns:
                raise
            return  # it asked until its turns were used up
        self._findings.expect(is_end(step), f"run returns a step that does not end the episode of task {task.id!r}")
        self._findings.expect(policy.requests > 0, f"the agent does not ask the policy on task {task.id!r}")

    async def _refusals_end(self, task: Task) -> None:
        """An agent whose requests are refused does not hang. It may fail."""
        try:
            await self._episode(task, SilentPolicy(0))
        except TimeoutError:
            raise
        except Exception:
            return

    async def _close_comes_before_the_episode(self) -> None:
        await call((await call(self._stage.make)).close)

    async def _episodes_leak_nothing(self) -> None:
        """Concurrent episodes end, and leave nothing behind."""
        tasks = [self._tasks[index % len(self._tasks)] for index in range(self._together)]

        async def beside_each_other() -> None:
            await asyncio.gather(*(self._silence_ends(task) for task in tasks))

        for name, number in (await growth(beside_each_other)).items():
            self._findings.expect(False, f"each round of {self._together} closed episodes leaks {number} {name}")

    async def _episode(self, task: Task, policy: SilentPolicy) -> Step:
        harness: Harness = await call(self._stage.make)
        context = self._stage.context(task)
        scratch = context.scratch
        try:
            step: Step = await call(harness.run, task, policy=policy, seed=7, context=context)
            expect_valid("run", step, Step, flaw_in_step)
            return step
        finally:
            await call(harness.close)
            await context.aclose()
            text = "the scratch folder of the context exists after the episode: do not write to it after run"
            self._findings.expect(not scratch.exists(), text)
