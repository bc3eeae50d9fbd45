"""Verdicts on trajectories. A reward that fails leaves its trajectory *not scored*, which is not zero."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from rlcore.calls import CallFailed, call
from rlcore.types import NOT_SCORED, EndReason, Group, RewardResult, Task, Trajectory

if TYPE_CHECKING:
    from rlcore.run import SelectedReward


_ENDED = "the trajectory itself had ended as "


class Scorer:
    """Runs the selected rewards and adds them up.

    Plain functions run in threads, so that a slow one keeps neither generation nor other rewards waiting. The step
    rewards of an environment are in ``trajectory.metrics["step_reward"]`` and no part of the sum unless a reward reads
    them there.
    """

    def __init__(self, rewards: Sequence[SelectedReward], *, timeout_s: float, concurrency: int = 256):
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._singles: list[tuple[str, SelectedReward]] = []
        self._groups: list[tuple[str, SelectedReward]] = []
        self._weights: dict[str, float] = {}
        for reward in rewards:
            name, count = reward.id, 1
            while name in self._weights:
                count += 1
                name = f"{reward.id}#{count}"
            self._weights[name] = reward.weight
            (self._groups if reward.scope == "group" else self._singles).append((name, reward))

    async def judge(self, trajectory: Trajectory, task: Task) -> Trajectory:
        """The trajectory with the verdicts of the rewards that judge it alone; to be called as soon as it ended."""
        if trajectory.end_reason in NOT_SCORED:
            return trajectory
        verdicts = await asyncio.gather(*(self._verdict(reward, trajectory, task) for _, reward in self._singles))
        names = (name for name, _ in self._singles)
        return trajectory.replace(rewards={**trajectory.rewards, **dict(zip(names, verdicts, strict=True))})

    async def settle(self, group: Group) -> Group:
        """The judged group with the verdicts of its group rewards and with every trajectory's weighted sum.

        Group rewards see all siblings, also those that are not scored, whose verdicts are dropped.
        """
        judged = group
        for name, reward in self._groups:
            verdicts = await self._group_verdicts(reward, judged)
            trajectories = (
                trajectory
                if trajectory.end_reason in NOT_SCORED
                else trajectory.replace(rewards={**trajectory.rewards, name: verdict})
                for trajectory, verdict in zip(group.trajectories, verdicts, strict=True)
            )
            group = Group(task=group.task, trajectories=tuple(trajectories))
        return Group(task=group.task, trajectories=tuple(map(self._summed, group.trajectories)))

    def _summed(self, trajectory: Trajectory) -> Trajectory:
        """With the weighted sum, or with the reason why there is none. A metric (weight 0) decides nothing."""
        if trajectory.end_reason in NOT_SCORED:
            return trajectory.replace(reward=None)
        total, failures = 0.0, []
        for name, weight in self._weights.items():
            verdict = trajectory.rewards[name]
            if weight and verdict.value is None:
                failures.append(f"reward {name}: {verdict.error}")
            elif weight and verdict.value is not None:
                total += weight * verdict.value
        if not failures:
            return trajectory.replace(reward=total)
        failures.append(f"{_ENDED}{trajectory.end_reason}")
        texts = [trajectory.error, *failures]
        return trajectory.replace(reward=None, end_reason=EndReason.REWARD_ERROR, error="; ".join(filter(None, texts)))

    async def _verdict(self, reward: SelectedReward, trajectory: Trajectory, task: Task) -> RewardResult:
        try:
            async with self._slots:
                answer = await call("it", reward.function, trajectory, task, timeout_s=self._timeout_s, threaded=True)
        except CallFailed as failure:
            return RewardResult(value=None, error=str(failure))
        return checked(answer, reward.minimum, reward.maximum)

    async def _group_verdicts(self, reward: SelectedReward, group: Group) -> list[RewardResult]:
        count = len(group.trajectories)
        try:
            async with self._slots:
                answers = await call("it", reward.function, group, timeout_s=self._timeout_s, threaded=True)
            answers = list(answers)
        except (CallFailed, TypeError) as failure:
            return [RewardResult(value=None, error=str(failure))] * count
        if len(answers) != count:
            error = f"it gave {len(answers)} verdicts for {count} trajectories"
            return [RewardResult(value=None, error=error)] * count
        return [checked(answer, reward.minimum, reward.maximum) for answer in answers]


def unscored(trajectory: Trajectory) -> Trajectory:
    """The trajectory as it was before any reward saw it, what a failed reward had made of its end undone."""
    end_reason, error = trajectory.end_reason, trajectory.error
    if end_reason is EndReason.REWARD_ERROR:
        error, _, ended = (error or "").rpartition(_ENDED)
        end_reason = EndReason(ended) if ended in list(EndReason) else EndReason.DONE
        failures = [f"reward {name}: {verdict.error}" for name, verdict in trajectory.rewards.items()]
        for failure in failures:
            error = error.partition(failure)[0]
        error = error.rstrip("; ") or None
    return trajectory.replace(end_reason=end_reason, error=error, rewards={}, reward=None)


def checked(answer: Any, minimum: float, maximum: float) -> RewardResult:
    """What a reward answered, as a verdict; not scored where it is no finite number between the bounds."""
    verdict = answer if isinstance(answer, RewardResult) else RewardResult(value=answer)
    if verdict.value is None:
        error = verdict.error or "it gave no value and no error"
    elif not isinstance(verdict.value, Real):
        error = f"it gave a {type(verdict.value).__name__}, not a number"
    else:
        try:
            value = float(verdict.value)
        except OverflowError:
            value = math.inf
        if minimum <= value <= maximum and math.isfinite(value):
            return RewardResult(value=value, components=verdict.components, error=verdict.error)
        error = f"it gave {value:g}, which is outside [{minimum:g}, {maximum:g}]"
    return RewardResult(value=None, components=verdict.components, error=error)
