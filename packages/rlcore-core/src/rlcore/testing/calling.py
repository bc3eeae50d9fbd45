"""Creates and calls components as a run does, but exceptions propagate and calls have a deadline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from numbers import Real
from typing import Any

from rlcore.console.wording import counted
from rlcore.episodes.calls import describe
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.rewards import SelectedReward
from rlcore.episodes.threads import run_in_thread
from rlcore.plugins.registry import Registry, make
from rlcore.specs import RewardSpec
from rlcore.types import Group, RewardResult, Task, Trajectory
from rlcore.types.checking import flaw_in_numbers

DEADLINE_S = 30.0


async def call(function: Callable[..., Any], *arguments: Any, threaded: bool = False, **keywords: Any) -> Any:
    """Return the result, awaited if it is awaitable. Raises `TimeoutError` after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        if threaded and not inspect.iscoroutinefunction(function):
            answer = await run_in_thread(function, *arguments, **keywords)
        else:
            answer = function(*arguments, **keywords)
        return await answer if inspect.isawaitable(answer) else answer


def component(
    registry: Registry, kind: str, id: str, options: Mapping[str, Any] | None, **keywords: Any
) -> Callable[[], Any]:
    """Return a function that creates the component with these options, validated by its own model, and keywords."""
    target, model = registry.load(kind, id), registry.config_model(kind, id)
    if keywords:
        target = partial(target, **keywords)
    if model is None:
        assert not options, f"the {kind} {id!r} takes no options, but was given {dict(options or {})}"
        return lambda: make(target, None)
    own = {"id": id} if "id" in model.model_fields else {}  # a component that a plugin claims for its id
    config = model.model_validate({**own, **(options or {})})
    return lambda: make(target, config)


def select_reward(id: str, options: Mapping[str, Any] | None = None) -> SelectedReward:
    """Return the reward with this id, as a run selects it, with weight 1."""
    registry = Registry()
    spec = registry.spec("reward", id)
    assert isinstance(spec, RewardSpec)
    return SelectedReward(
        id=id,
        weight=1.0,
        scope=spec.scope,
        function=component(registry, "reward", id, options)(),
        minimum=spec.minimum,
        maximum=spec.maximum,
        rewards_silence=spec.rewards_silence,
    )


async def value_of(
    reward: SelectedReward, trajectory: Trajectory, task: Task, context: EpisodeContext | None = None
) -> float | None:
    """Return the value of the reward, or None if it is *not scored*. Exceptions propagate.

    Without a context, the reward receives a new one.
    """
    if context is None:
        with closing(EpisodeContext(task, sibling=trajectory.sibling)) as context:
            return await value_of(reward, trajectory, task, context)
    declared = {"context": context} if reward.takes_context else {}
    if reward.scope == "group":
        group = Group(task=task, trajectories=(trajectory,))
        (answer,) = await call(reward.function, group, threaded=True, **declared)
    else:
        answer = await call(reward.function, trajectory, task, threaded=True, **declared)
    value = answer.value if isinstance(answer, RewardResult) else answer
    if isinstance(answer, RewardResult):
        if flaw := flaw_in_numbers(answer.components, "components"):
            raise TypeError(f"a reward returned {flaw}")
        if answer.error is not None and not isinstance(answer.error, str):
            raise TypeError(f"a reward returned an error of type {type(answer.error).__name__}")
    if value is None:
        if not isinstance(answer, RewardResult) or not answer.error:
            raise TypeError("a result without a value needs an error: RewardResult(value=None, error=…)")
        return None
    if not isinstance(value, Real):
        raise TypeError(f"a reward must return a number or a RewardResult, not a {type(value).__name__}")
    return float(value)


class Findings:
    """Collects contract violations, so that an author sees all of them at once."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._sentences: list[str] = []
        self._failed: dict[str, list[str]] = {}
        """The checks that failed with the same exception, by its text."""

    def expect(self, kept: bool, sentence: str) -> bool:
        """Record the sentence if the expectation is not met. Returns ``kept``."""
        if not kept and sentence not in self._sentences:
            self._sentences.append(sentence)
        return kept

    async def attempt(self, what: str, check: Any) -> None:
        """Await a check. Any exception that it raises is recorded as a violation."""
        try:
            await check
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except TimeoutError:
            self.expect(False, f"{what}: no answer within {DEADLINE_S:g} s")
        except Exception as error:
            self._failed.setdefault(describe(error), []).append(what)

    def conclude(self) -> None:
        """Raise one `AssertionError` with all sentences if there are any."""
        for text, (what, *others) in self._failed.items():
            more = f" and {counted(len(others), 'other check')}" if others else ""
            self._sentences.append(f"{what}{more}: {text}")
        if self._sentences:
            raise AssertionError(
                "\n".join([f"{self._subject} breaks the contract:", *map("  - {}".format, self._sentences)])
            )
