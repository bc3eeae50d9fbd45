"""Plays an environment with given assistant messages, as the agent loop does with model output."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from numbers import Real
from typing import TypeVar

from rlcore.contracts import Environment
from rlcore.episodes.context import EpisodeContext, takes_context
from rlcore.episodes.rewards import SelectedReward
from rlcore.episodes.sandbox import OpenSession
from rlcore.testing.calling import call, value_of
from rlcore.testing.trajectories import make_trajectory
from rlcore.types import Message, Observation, Step, Stop, Task, Trajectory
from rlcore.types.checking import flaw_in_observation, flaw_in_step

Value = TypeVar("Value")

LONGEST_EPISODE = 64
"""Maximum number of turns of a silent player."""

Oracle = Callable[[Task], Sequence[Message]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An episode played to its end, or until its actions run out."""

    first: Observation
    steps: tuple[Step, ...]
    ended: bool
    trajectory: Trajectory
    values: tuple[float | None, ...]
    """The values of the given rewards."""
    tidy: bool
    """Whether the scratch folder of the context was deleted after the episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An environment and how to call it."""

    make: Callable[[], Environment]
    blocking: bool = False
    open_sandbox: OpenSession | None = None
    """Starts the session of `EpisodeContext.sandbox`."""

    def context(self, task: Task, seed: int = 0) -> EpisodeContext:
        """A context for one episode."""
        return EpisodeContext(task, seed=seed, open_sandbox=self.open_sandbox)

    async def reset(self, environment: Environment, task: Task, context: EpisodeContext, seed: int) -> Observation:
        """Return the first observation. Passes the context if ``reset`` declares it."""
        declared = {"context": context} if takes_context(environment.reset) else {}
        first: Observation = await call(environment.reset, task, seed=seed, threaded=self.blocking, **declared)
        return first

    async def play(
        self, task: Task, actions: Iterable[Message], *, rewards: Sequence[SelectedReward] = (), seed: int = 7
    ) -> Episode:
        """Reset, step once per action until the end, and close. The rewards then score the episode."""
        context = self.context(task, seed)
        scratch = context.scratch
        try:
            first, messages, steps, ended = await self._episode(task, actions, context, seed)
            trajectory = make_trajectory(
                *messages,
                task_id=task.id,
                stop=stop_of(steps),
                tools=first.tools,
                images=[*task.images, *first.images, *(i for step in steps for i in step.observation.images)],
                metrics=totals(steps),
            )
            values = [await value_of(reward, trajectory, task, context) for reward in rewards]
        finally:
            await context.aclose()
        return Episode(
            first=first,
            steps=tuple(steps),
            ended=ended,
            trajectory=trajectory,
            values=tuple(values),
            tidy=not scratch.exists(),
        )

    async def _episode(
        self, task: Task, actions: Iterable[Message], context: EpisodeContext, seed: int
    ) -> tuple[Observation, list[Message], list[Step], bool]:
        environment = await call(self.make, threaded=self.blocking)
        try:
            first = await self.reset(environment, task, context, seed)
            expect_valid("reset", first, Observation, flaw_in_observation)
            messages, steps, ended = list(first.messages), [], False
            for action in actions:
                await asyncio.sleep(0)  # concurrent episodes take turns, also those whose methods do not wait
                step = await call(environment.step, action, threaded=self.blocking)
                expect_valid("step", step, Step, flaw_in_step)
                messages += [action, *step.observation.messages]
                steps.append(step)
                ended = is_end(step)
                if ended:
                    break
        finally:
            with suppress(Exception):  # close has its own check
                await call(environment.close, threaded=self.blocking)
        return first, messages, steps, ended


def silence() -> Iterable[Message]:
    """Yield empty answers, many times."""
    return repeat(Message(role="assistant", content=""), LONGEST_EPISODE)


def then_silence(actions: Iterable[Message]) -> Iterable[Message]:
    """Yield the actions, then empty answers."""
    return chain(actions, silence())


def is_end(step: Step) -> bool:
    """Return whether no action may follow."""
    return step.terminated or step.truncated or step.stop is not None


def outcome_of(step: Step) -> tuple[bool, float | None, Stop | None]:
    """Return whether a step ends the episode, its reward and why it stopped."""
    return is_end(step), step.reward, step.stop


def stop_of(steps: Sequence[Step]) -> Stop:
    """Return why the episode stopped, or ``max_turns`` if it had not stopped."""
    if not steps:
        return Stop.MAX_TURNS
    return steps[-1].stop or (Stop.DONE if steps[-1].terminated else Stop.MAX_TURNS)


def totals(steps: Sequence[Step]) -> dict[str, float]:
    """Return the totals of the agent loop: ``turns``, ``step_reward`` and the numbers of ``info``."""
    sums: dict[str, float] = {"turns": float(len(steps))}
    for step in steps:
        numbers = dict(step.info)
        if step.reward is not None:
            numbers["step_reward"] = step.reward
        for name, value in numbers.items():
            if isinstance(value, Real) and math.isfinite(value):
                sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def expect_valid(name: str, value: object, kind: type[Value], flaw_in: Callable[[Value], str | None]) -> None:
    """Raise `TypeError` unless a method returned the type required by the contract, with valid fields."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must return a {kind.__name__}, not a {type(value).__name__}")
    if flaw := flaw_in(value):
        raise TypeError(f"{name} returned {flaw}")
