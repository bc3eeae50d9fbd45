"""Plays an environment with given assistant messages, as the agent loop would with a model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from numbers import Real

from rlcore.contracts import Environment
from rlcore.testing.calling import call
from rlcore.testing.trajectories import make_trajectory
from rlcore.types import EndReason, Message, Observation, Step, Task, Trajectory

LONGEST_EPISODE = 64
"""Turns after which a silent player gives up."""

Oracle = Callable[[Task], Sequence[Message]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode that was played to its end, or to the end of its actions."""

    first: Observation
    steps: tuple[Step, ...]
    ended: bool
    trajectory: Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An environment and how it wants to be called."""

    make: Callable[[], Environment]
    blocking: bool = False

    async def play(self, task: Task, actions: Iterable[Message], *, seed: int = 7) -> Episode:
        """Reset, one step for each action until the end, close."""
        environment = await call(self.make, threaded=self.blocking)
        try:
            first = await call(environment.reset, task, seed=seed, threaded=self.blocking)
            expect_type("reset", first, Observation)
            messages, steps, ended = list(first.messages), [], False
            for action in actions:
                step = await call(environment.step, action, threaded=self.blocking)
                expect_type("step", step, Step)
                messages += [action, *step.observation.messages]
                steps.append(step)
                ended = is_end(step)
                if ended:
                    break
        finally:
            with suppress(Exception):  # what close may not do is looked at on its own
                await call(environment.close, threaded=self.blocking)
        trajectory = make_trajectory(
            *messages,
            task_id=task.id,
            end_reason=end_reason(steps),
            tools=first.tools,
            metrics=totals(steps),
        )
        return Episode(first=first, steps=tuple(steps), ended=ended, trajectory=trajectory)


def silence() -> Iterable[Message]:
    """A player that says nothing, for a long time."""
    return repeat(Message(role="assistant", content=""), LONGEST_EPISODE)


def then_silence(actions: Iterable[Message]) -> Iterable[Message]:
    """The actions, then nothing but silence."""
    return chain(actions, silence())


def is_end(step: Step) -> bool:
    """Whether no action may follow."""
    return step.terminated or step.truncated or step.end_reason is not None


def end_reason(steps: Sequence[Step]) -> EndReason:
    """Why the episode ended; ``max_turns`` when it had not."""
    if not steps:
        return EndReason.MAX_TURNS
    return steps[-1].end_reason or (EndReason.DONE if steps[-1].terminated else EndReason.MAX_TURNS)


def totals(steps: Sequence[Step]) -> dict[str, float]:
    """The sums that the agent loop keeps: ``turns``, ``step_reward`` and the numbers of ``info``."""
    sums: dict[str, float] = {"turns": float(len(steps))}
    for step in steps:
        numbers = dict(step.info)
        if step.reward is not None:
            numbers["step_reward"] = step.reward
        for name, value in numbers.items():
            if isinstance(value, Real) and math.isfinite(value):
                sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def expect_type(name: str, value: object, kind: type) -> None:
    """Raise unless a method returned what the contract says."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must return a {kind.__name__}, it returned a {type(value).__name__}")
