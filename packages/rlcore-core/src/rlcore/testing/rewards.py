"""The conformance checks for rewards."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlcore import event_loop
from rlcore.episodes.rewards import SelectedReward
from rlcore.testing.calling import Findings, select_reward, value_of
from rlcore.testing.hostile import HOSTILE_TEXTS, POWER, hostile_images
from rlcore.testing.trajectories import make_trajectory
from rlcore.types import ImagePart, Message, Task, Trajectory

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCase:
    """A trajectory and its expected value. None means that it must not be scored."""

    task: Task
    trajectory: Trajectory
    value: float | None


def check_reward(
    reward: str | Callable[..., Any],
    cases: Sequence[RewardCase] = (),
    *,
    options: Mapping[str, Any] | None = None,
    minimum: float = 0.0,
    maximum: float = 1.0,
    rewards_silence: bool = False,
) -> None:
    """Raise an `AssertionError` that lists every contract violation of the reward.

    The checks cover:

    - Each case gets its expected value. If there are cases, one of them scores the maximum, and an empty answer scores
      the minimum, unless the reward declares otherwise.
    - Values are finite numbers within the bounds. They are equal when computed again, in another order and
      concurrently.
    - A broken trajectory, a hostile text, an unusable image or a task without its fields is scored within the bounds
      or not at all, and never as if the answer were wrong.

    Args:
        reward: an id of ``rlcore plugins list``, ``module:attribute``, or the reward itself.
        cases: trajectories (`make_trajectory`) and their values. Group rewards score all of them as one group.
        options: keys of the ``[[reward]]`` table, for an id.
        minimum: the lower bound, if the reward is not given by id.
        maximum: the upper bound, if the reward is not given by id.
        rewards_silence: True for a reward for which an empty answer may score more than the minimum, such as one for
            brevity. The spec or the attribute ``rewards_silence`` of the reward declares the same.
    """
    if isinstance(reward, str):
        selected = select_reward(reward, options)
    else:
        name = getattr(reward, "__name__", type(reward).__name__)
        selected = SelectedReward(
            id=name, weight=1.0, scope="trajectory", function=reward, minimum=minimum, maximum=maximum
        )
    silent = rewards_silence or selected.rewards_silence or bool(getattr(reward, "rewards_silence", False))
    findings = Findings(f"The reward {selected.id}")
    event_loop.run(_Checks(selected, list(cases), not silent, findings).run())
    findings.conclude()


class _Checks:
    def __init__(self, reward: SelectedReward, cases: list[RewardCase], empty: bool, findings: Findings) -> None:
        self.reward, self.cases, self.empty, self.findings = reward, cases, empty, findings
        self.expect = findings.expect

    async def run(self) -> None:
        attempt = self.findings.attempt
        try:
            await attempt("a case", self.cases_get_their_values())
            await attempt("scoring again", self.values_repeat())
            await attempt("a broken trajectory", self.broken_input_is_not_scored_as_wrong())
        finally:
            await self.reward.close()

    async def cases_get_their_values(self) -> None:
        """Each case gets its value, one case scores the maximum, and an empty answer scores the minimum."""
        for case in self.cases:
            value = await self._value(case)
            right = value is None if case.value is None else value is not None and abs(value - case.value) <= TOLERANCE
            self.expect(right, f"{_answer(case)} must score {_shown(case.value)}, but scores {_shown(value)}")
        values = [case.value for case in self.cases]
        if not self.cases:
            return
        self.expect(
            self.reward.maximum in values or math.isinf(self.reward.maximum),
            f"no case scores the maximum ({self.reward.maximum:g}): add one with a correct answer",
        )
        if self.empty:
            for case in [case for case in self.cases if case.value is not None]:
                value = await self._value(_with_answer(case, ""))
                self.expect(
                    value == self.reward.minimum,
                    f"an empty answer must score the minimum ({self.reward.minimum:g}), but scores {_shown(value)}; "
                    "if that is intended, set rewards_silence=True in its RewardSpec, or on it if it has no id",
                )

    async def values_repeat(self) -> None:
        """Values are equal in another order, when repeated, and when computed concurrently."""
        first = [await self._value(case) for case in self.cases]
        again = [await self._value(case) for case in reversed(self.cases)][::-1]
        for case, one, other in zip(self.cases, first, again, strict=True):
            self.expect(
                one == other,
                f"{_answer(case)} scores {_shown(one)}, then {_shown(other)} when scored again in another order",
            )
        many = self.cases * 8
        together = await asyncio.gather(*map(self._value, many))
        self.expect(together == first * 8, "values differ when each case is scored eight times concurrently")

    async def broken_input_is_not_scored_as_wrong(self) -> None:
        """A failed trajectory gets no value. A hostile text is scored like any other text."""
        tasks = [case.task for case in self.cases[:1]] or [Task(id="task", messages=())]
        for task in tasks:
            for name, text in (HOSTILE_TEXTS | POWER).items():
                await self._tolerates(name, make_trajectory(*task.messages, text), task)
            nothing = make_trajectory()
            await self._tolerates("a trajectory without a turn", nothing, task)
            tool = Message(role="tool", content="42", name="tool")
            await self._tolerates("a trajectory of one tool message", make_trajectory(tool), task)
            for name, data in hostile_images():
                shown = Message(role="user", content=(ImagePart.of(data),))
                await self._tolerates(name, make_trajectory(shown, "42", images=[data]), task)
        for case in self.cases:
            if case.value is None or not case.task.fields or case.value == self.reward.minimum:
                continue
            bare = replace(case.task, fields={})
            value = await self._tolerates("a task without its fields", case.trajectory, bare)
            self.expect(
                value is None or value == case.value,
                f"a task without its fields scores {_shown(value)} instead of {_shown(case.value)}: "
                "a missing field must be an error (raise, or value=None), not a wrong answer",
            )

    async def _tolerates(self, name: str, trajectory: Trajectory, task: Task) -> float | None:
        """Return the value, or None if the trajectory was not scored. Raising is allowed and means *not scored*."""
        try:
            value = await value_of(self.reward, trajectory, task)
        except TimeoutError:
            raise
        except Exception:
            return None
        self._within(name, value)
        return value

    async def _value(self, case: RewardCase) -> float | None:
        """Return the value of a case. A case that must not be scored may raise."""
        if case.value is None:
            return await self._tolerates(_answer(case), case.trajectory, case.task)
        value = await value_of(self.reward, case.trajectory, case.task)
        self._within(_answer(case), value)
        return value

    def _within(self, name: str, value: float | None) -> None:
        low, high = self.reward.minimum, self.reward.maximum
        self.expect(
            value is None or (math.isfinite(value) and low <= value <= high),
            f"{name} scores {_shown(value)}, which is outside [{low:g}, {high:g}]",
        )


def _with_answer(case: RewardCase, text: str) -> RewardCase:
    """Return the case with one assistant message of this text after the task's own messages."""
    images = [*case.task.images, *case.trajectory.images.values()]
    trajectory = make_trajectory(*case.task.messages, text, task_id=case.task.id, images=images)
    return replace(case, trajectory=trajectory, value=0.0)


def _answer(case: RewardCase) -> str:
    text = case.trajectory.final_response
    return f"the answer {text if len(text) <= 60 else text[:57] + '...'!r}"


def _shown(value: float | None) -> str:
    return "nothing (not scored)" if value is None else f"{value:g}"
