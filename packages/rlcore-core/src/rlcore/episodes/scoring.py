"""Scores trajectories. If a reward fails, its trajectory is *not scored*, which differs from zero."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any

from rlcore.episodes.calls import CallFailed, call, together
from rlcore.episodes.context import EpisodeContext
from rlcore.plugin_calls import error_text, plugin_code, value_text
from rlcore.timing import collected, timed
from rlcore.types import Boundary, Failure, Group, RewardResult, Task, Trajectory
from rlcore.types.checking import flaw_in_numbers
from rlcore.types.trajectory import LONGEST_TEXT

if TYPE_CHECKING:
    from rlcore.episodes.rewards import SelectedReward

TIMED_OUT = "time-out"
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,39}")


def reward_names(ids: Sequence[str]) -> list[str]:
    """Return the names under which a trajectory has the results of these rewards: ids, numbered if they repeat."""
    names: list[str] = []
    for id in ids:
        name, count = id, 1
        while name in names:
            count += 1
            name = f"{id}#{count}"
        names.append(name)
    return names


class Scorer:
    """Runs the selected rewards and computes their weighted sum.

    Plain functions run in threads, so that a slow one delays neither generation nor other rewards. The environment's
    rewards for single turns are in ``trajectory.metrics["step_reward"]`` and not part of the sum.

    Args:
        rewards: the rewards of the run
        timeout_s: deadline of each call of a reward that has none of its own
        concurrency: maximum number of concurrent calls
        seed: seed of the contexts created by the scorer
    """

    def __init__(
        self, rewards: Sequence[SelectedReward], *, timeout_s: float, concurrency: int = 256, seed: int = 0
    ) -> None:
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._seed = seed
        self._singles: list[tuple[str, SelectedReward]] = []
        self._groups: list[tuple[str, SelectedReward]] = []
        self._weights: dict[str, float] = {}
        self._origins: dict[str, str] = {}
        for name, reward in zip(reward_names([reward.id for reward in rewards]), rewards, strict=True):
            self._weights[name] = reward.weight
            self._origins[name] = f" ({reward.origin})" if reward.origin else ""
            (self._groups if reward.scope == "group" else self._singles).append((name, reward))

    async def score(self, trajectory: Trajectory, task: Task, context: EpisodeContext | None = None) -> Trajectory:
        """Add the results of the rewards with scope ``trajectory``. Called when the episode has ended.

        Without the context of the episode, as for a stored trajectory, rewards receive a new one.
        """
        if not trajectory.scorable:
            return trajectory
        if context is None:
            with closing(EpisodeContext(task, sibling=trajectory.sibling, seed=self._seed)) as context:
                return await self._scored(trajectory, task, context)
        return await self._scored(trajectory, task, context)

    async def _scored(self, trajectory: Trajectory, task: Task, context: EpisodeContext) -> Trajectory:
        results = await together(*(self._result(reward, trajectory, task, context) for _, reward in self._singles))
        names = (name for name, _ in self._singles)
        return trajectory.replace(rewards={**trajectory.rewards, **dict(zip(names, results, strict=True))})

    async def settle(self, group: Group) -> Group:
        """Return the scored group with the results of its group rewards and the weighted sum of every trajectory.

        Group rewards see all siblings, including those with a failure, whose results are discarded. They receive a
        separate context, because the contexts of the episodes are closed.
        """
        scored = group
        for name, reward in self._groups:
            with collected() as times:
                results = await self._group_results(reward, scored)
            # The time is that of the whole group, so it is counted once.
            first = (one.replace(times=(*one.times, *times)) for one in group.trajectories[:1])
            group = Group(task=group.task, trajectories=(*first, *group.trajectories[1:]))
            trajectories = (
                trajectory.replace(rewards={**trajectory.rewards, name: result}) if trajectory.scorable else trajectory
                for trajectory, result in zip(group.trajectories, results, strict=True)
            )
            group = Group(task=group.task, trajectories=tuple(trajectories))
        return Group(task=group.task, trajectories=tuple(map(self._summed, group.trajectories)))

    def _summed(self, trajectory: Trajectory) -> Trajectory:
        """Add the weighted sum, or the failure of the rewards. A metric (weight 0) has no influence."""
        if not trajectory.scorable:
            return trajectory.replace(reward=None)
        total, errors = 0.0, []
        for name, weight in self._weights.items():
            result = trajectory.rewards[name]
            if weight and result.value is None:
                errors.append(f"reward {name}{self._origins[name]}: {result.error}")
            elif weight and result.value is not None:
                total += weight * result.value
        if not math.isfinite(total):
            errors.append("the weighted sum of the rewards is too large for a number")
        if not errors:
            return trajectory.replace(reward=total)
        return trajectory.replace(reward=None, failure=Failure(boundary=Boundary.REWARD, message="; ".join(errors)))

    async def _result(
        self, reward: SelectedReward, trajectory: Trajectory, task: Task, context: EpisodeContext
    ) -> RewardResult:
        try:
            with timed("reward", reward.id):
                answer = await self._call(reward, trajectory, task, context=context)
        except CallFailed as failure:
            return _failed(failure)
        return checked(answer, reward.minimum, reward.maximum)

    async def _group_results(self, reward: SelectedReward, group: Group) -> list[RewardResult]:
        count = len(group.trajectories)
        try:
            with closing(EpisodeContext(group.task, seed=self._seed)) as context, timed("reward", reward.id):
                answers = await self._call(reward, group, context=context)
            with plugin_code(""):
                answers = _listed(answers, count)
        except CallFailed as failure:
            return [_failed(failure)] * count
        except Exception as failure:  # an answer may be of any class
            return [RewardResult(value=None, error=f"it returned no list of values: {error_text(failure)}")] * count
        return [checked(answer, reward.minimum, reward.maximum) for answer in answers]

    async def _call(self, reward: SelectedReward, *arguments: Any, context: EpisodeContext) -> Any:
        declared: dict[str, Any] = {"context": context} if reward.takes_context else {}
        async with self._slots:
            # Nothing waits for a single score, so many short calls may share one thread.
            return await call(
                "it",
                reward.function,
                *arguments,
                timeout_s=self._timeout_s if reward.timeout_s is None else reward.timeout_s,
                threaded=True,
                at_once=False,
                **declared,
            )


def _failed(failure: CallFailed) -> RewardResult:
    return RewardResult(value=None, error=str(failure), error_kind=TIMED_OUT if failure.timed_out else "")


def _listed(answers: Any, count: int) -> list[Any]:
    """The values of a group reward, which may be an array."""
    if isinstance(answers, (str, bytes, Mapping, Set)) or not hasattr(answers, "__getitem__"):
        raise TypeError(f"it returned {value_text(answers)}")
    if len(answers) != count:
        raise CallFailed(f"it returned {len(answers)} values for {count} trajectories")
    return list(islice(answers, count))


def checked(answer: Any, minimum: float, maximum: float) -> RewardResult:
    """Convert the value of a reward to a result. It is scored only if it is a finite number within the bounds."""
    try:
        with plugin_code(""):
            return _checked(answer, minimum, maximum)
    except Exception as error:  # a value may be of any class
        return RewardResult(value=None, error=f"it returned a value that cannot be read: {error_text(error)}")


def _checked(answer: Any, minimum: float, maximum: float) -> RewardResult:
    result = answer if isinstance(answer, RewardResult) else RewardResult(value=answer)
    if flaw := flaw_in_numbers(result.components, "components"):
        return RewardResult(value=None, error=f"it returned {flaw}")
    if result.error is not None and not isinstance(result.error, str):
        return RewardResult(value=None, error=f"it returned an error of type {type(result.error).__name__}")
    kind = result.error_kind
    if not isinstance(kind, str) or not (kind == "" or _KIND.fullmatch(kind)):
        return RewardResult(value=None, error=f"it returned an error_kind that is no short name: {value_text(kind)}")
    if not isinstance(result.text, str):
        return RewardResult(value=None, error=f"it returned a text of type {type(result.text).__name__}")
    components = {name: float(value) for name, value in result.components.items()}
    text = result.text[:LONGEST_TEXT]
    if result.value is None:
        error = result.error or "it returned neither a value nor an error"
    elif not isinstance(result.value, Real):
        error = f"it returned a {type(result.value).__name__}, not a number"
    else:
        try:
            value = float(result.value)
        except OverflowError:
            value = math.inf
        if minimum <= value <= maximum and math.isfinite(value):
            return RewardResult(value=value, components=components, error=result.error, error_kind=kind, text=text)
        error = f"it returned {value:g}, which is outside [{minimum:g}, {maximum:g}], its minimum and maximum"
    return RewardResult(value=None, components=components, error=error, error_kind=kind, text=text)
