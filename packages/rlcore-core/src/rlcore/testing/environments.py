"""What every environment must keep."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.contracts import Environment
from rlcore.records import message_from_json, message_to_json
from rlcore.registry import Registry
from rlcore.specs import EnvironmentSpec
from rlcore.testing.calling import Findings, call
from rlcore.testing.components import component
from rlcore.testing.episodes import Oracle, Stage, is_end, silence, then_silence
from rlcore.testing.hostile import hostile_actions
from rlcore.testing.leaks import growth
from rlcore.testing.rewards import select_reward, verdict_of
from rlcore.types import Message, Observation, Step, Task

if TYPE_CHECKING:
    from rlcore.run import SelectedReward

TOGETHER = 8
"""Episodes that must be able to run beside each other."""


def check_environment(
    environment: str | Callable[[], Environment],
    *,
    options: Mapping[str, Any] | None = None,
    tasks: Sequence[Task] | None = None,
    data: Mapping[str, Any] | None = None,
    rewards: Sequence[str | SelectedReward] = (),
    oracle: Oracle | None = None,
    needs_oracle: bool = True,
) -> None:
    """Raise an `AssertionError` that lists every promise of the contract that the environment breaks.

    Checked: the observation of a reset repeats with its seed and leaves Python's random numbers alone; observations
    survive JSON and hold only what is new; perfect play scores the maximum of every reward and silence the minimum;
    no action makes it raise or end without a word; a step after the end does not go on; ``close`` may come at any time
    and twice; eight episodes run beside each other; nothing leaks.

    Args:
        environment: an id of ``rlcore plugins list``, ``module:Class``, or a function that makes a new environment.
        options: keys of the ``[environment]`` table, for an id.
        tasks: what to try it on; by default the first three of the dataset of the same id, made from ``data``.
        data: keys of the ``[data]`` table.
        rewards: ids, or rewards of a run, that perfect play and silence are judged by.
        oracle: perfect play: the assistant's messages of a whole episode. By default the environment's own attribute
            ``oracle(task)``.
        needs_oracle: False for an environment whose perfect play nobody knows.
    """
    stage, together, tasks = _prepare(environment, options, tasks, data)
    findings = Findings(f"The environment {environment if isinstance(environment, str) else _name(environment)}")
    checks = _Checks(stage, together, tasks, _select(rewards), oracle, needs_oracle, findings)
    asyncio.run(checks.run())
    findings.conclude()


class _Checks:
    def __init__(
        self,
        stage: Stage,
        together: int,
        tasks: Sequence[Task],
        rewards: Sequence[SelectedReward],
        oracle: Oracle | None,
        needs_oracle: bool,
        findings: Findings,
    ) -> None:
        self.stage, self.together, self.tasks, self.rewards = stage, together, tasks, rewards
        self.oracle, self.needs_oracle, self.findings = oracle, needs_oracle, findings
        self.expect = findings.expect

    async def run(self) -> None:
        attempt = self.findings.attempt
        if not self.expect(bool(self.tasks), "there is no task to try it on"):
            return
        if self.oracle is None:
            self.oracle = getattr(await call(self.stage.make), "oracle", None)
        if self.oracle is None and self.needs_oracle:
            sentence = (
                "perfect play is unknown: give it an attribute oracle(task) that returns the assistant's messages"
            )
            self.expect(False, sentence)
        for task in self.tasks:
            await attempt(f"reset of task {task.id!r}", self.reset_repeats(task))
            await attempt(f"silence on task {task.id!r}", self.silence_scores_the_minimum(task))
            if self.oracle is not None:
                await attempt(f"perfect play of task {task.id!r}", self.oracle_scores_the_maximum(task, self.oracle))
        await attempt("a hostile action", self.hostile_actions_are_answered(self.tasks[0]))
        await attempt("a step after the end", self.the_end_is_the_end(self.tasks[0]))
        await attempt("close", self.close_comes_at_any_time(self.tasks[0]))
        await attempt(f"{self.together} episodes at a time", self.episodes_keep_apart_and_leak_nothing())

    async def reset_repeats(self, task: Task) -> None:
        """The same seed shows the same thing, whatever happened to Python's global random numbers."""
        outside = random.getstate()
        random.seed()  # a state that no reset can reach by chance
        before = random.getstate()
        try:
            first = (await self.stage.play(task, ())).first
            self.expect(
                random.getstate() == before,
                "reset changes Python's global random numbers: make a random.Random(seed) of its own",
            )
        finally:
            random.setstate(outside)
        second = (await self.stage.play(task, ())).first
        self.expect(
            first == second,
            f"reset does not repeat with its seed: task {task.id!r} looked different the second time, "
            "and the trajectories of a group must start from the same state",
        )
        self.expect(bool(first.messages), f"the first observation of task {task.id!r} holds no message")
        self._observation("reset", first)

    async def silence_scores_the_minimum(self, task: Task) -> None:
        """An agent that says nothing reaches an end and earns nothing."""
        episode = await self.stage.play(task, silence())
        if not self.expect(episode.ended, f"{len(episode.steps)} empty answers do not end the episode"):
            return
        for reward in self.rewards:
            value = await verdict_of(reward, episode.trajectory, task)
            self.expect(
                value == reward.minimum,
                f"an empty answer must score the minimum of {reward.id} ({reward.minimum:g}), it scores {value}",
            )

    async def oracle_scores_the_maximum(self, task: Task, oracle: Oracle) -> None:
        """Perfect play ends the episode and earns everything."""
        episode = await self.stage.play(task, then_silence(await call(oracle, task)))
        self.expect(episode.ended, f"perfect play of task {task.id!r} does not end the episode")
        for step in episode.steps:
            self._observation("step", step.observation)
        for reward in self.rewards:
            value = await verdict_of(reward, episode.trajectory, task)
            self.expect(
                value == reward.maximum,
                f"perfect play must score the maximum of {reward.id} ({reward.maximum:g}), it scores {value} "
                f"on task {task.id!r}",
            )

    async def hostile_actions_are_answered(self, task: Task) -> None:
        """Whatever a model writes is answered: no exception, no silent end."""
        tools = (await self.stage.play(task, ())).first.tools
        for name, action in hostile_actions(tools):
            try:
                episode = await self.stage.play(task, [action])
            except Exception as error:
                self.expect(False, f"{name} makes it raise {type(error).__name__}: {error}")
                continue
            step = episode.steps[0]
            self._observation("step", step.observation)
            silent = step.terminated and not step.observation.messages and step.end_reason is None
            self.expect(
                not (silent and action.tool_calls and tools),
                f"{name} ends the episode without a word: tell the model what was wrong, so that it can learn",
            )

    async def the_end_is_the_end(self, task: Task) -> None:
        """After the end an action is refused, or ended again."""
        environment = await call(self.stage.make, threaded=self.stage.blocking)
        try:
            await call(environment.reset, task, seed=7, threaded=self.stage.blocking)
            for action in silence():
                step: Step = await call(environment.step, action, threaded=self.stage.blocking)
                if is_end(step):
                    break
            try:
                after = await call(environment.step, Message(role="assistant"), threaded=self.stage.blocking)
            except Exception:
                return  # a refusal is an answer
            self.expect(is_end(after), "a step after the end goes on as if nothing had ended")
        finally:
            await call(environment.close, threaded=self.stage.blocking)

    async def close_comes_at_any_time(self, task: Task) -> None:
        """Before the reset, in the middle, and twice."""
        for when, resets in (("before the reset", False), ("in the middle of an episode", True)):
            environment = await call(self.stage.make, threaded=self.stage.blocking)
            if resets:
                await call(environment.reset, task, seed=7, threaded=self.stage.blocking)
            for times in ("", " a second time"):
                try:
                    await call(environment.close, threaded=self.stage.blocking)
                except Exception as error:
                    self.expect(False, f"close {when}{times} raises {type(error).__name__}: {error}")

    async def episodes_keep_apart_and_leak_nothing(self) -> None:
        """Episodes beside each other see what each sees alone, and leave nothing behind."""
        tasks = [self.tasks[index % len(self.tasks)] for index in range(self.together)]
        actions = [await self._actions(task) for task in tasks]
        alone = [await self.stage.play(task, played) for task, played in zip(tasks, actions, strict=True)]

        async def beside_each_other() -> None:
            games = (self.stage.play(task, played) for task, played in zip(tasks, actions, strict=True))
            for task, single, beside in zip(tasks, alone, await asyncio.gather(*games), strict=True):
                self.expect(
                    single.first == beside.first and single.ended == beside.ended,
                    f"task {task.id!r} looks different with {self.together} episodes at a time: they share state",
                )
                for reward in self.rewards:
                    value = await verdict_of(reward, single.trajectory, task)
                    self.expect(
                        value == await verdict_of(reward, beside.trajectory, task),
                        f"{reward.id} of the same play differs with {self.together} episodes at a time",
                    )

        for name, count in (await growth(beside_each_other)).items():
            self.expect(False, f"{self.together} closed episodes leave {count} {name} behind, every time")

    async def _actions(self, task: Task) -> list[Message]:
        return list(then_silence(await call(self.oracle, task) if self.oracle is not None else ()))

    def _observation(self, method: str, observation: Observation) -> None:
        """An observation is plain data, and only what is new."""
        try:
            texts = [json.dumps(message_to_json(message)) for message in observation.messages]
            json.dumps([tool.as_json() for tool in observation.tools])
            back = tuple(message_from_json(json.loads(text)) for text in texts)
        except Exception as error:
            self.expect(False, f"an observation of {method} is no plain data: {type(error).__name__}: {error}")
            return
        self.expect(back == tuple(observation.messages), f"an observation of {method} does not survive JSON")
        self.expect(isinstance(observation.messages, tuple), f"the messages of {method} must be a tuple")
        if method == "step":
            roles = {message.role for message in observation.messages}
            self.expect(
                "assistant" not in roles,
                "step returns an assistant message: an observation holds only what is new, never the action itself",
            )


def _prepare(
    environment: str | Callable[[], Environment],
    options: Mapping[str, Any] | None,
    tasks: Sequence[Task] | None,
    data: Mapping[str, Any] | None,
) -> tuple[Stage, int, Sequence[Task]]:
    """How to make it, how many may be alive, and what to try it on."""
    if not isinstance(environment, str):
        assert tasks is not None, "check_environment needs tasks=[…] for an environment without an id"
        return Stage(make=environment), TOGETHER, tasks
    registry = Registry()
    spec = registry.spec("environment", environment)
    assert isinstance(spec, EnvironmentSpec)
    stage = Stage(make=component(registry, "environment", environment, options), blocking=spec.blocking)
    if tasks is None:
        tasks = list(component(registry, "dataset", environment, data)().tasks("train"))[:3]
    return stage, min(TOGETHER, spec.max_concurrency or TOGETHER), tasks


def _select(rewards: Sequence[str | SelectedReward]) -> list[SelectedReward]:
    """Rewards that judge one trajectory and count, those given by id with their default options."""
    found = [select_reward(reward) if isinstance(reward, str) else reward for reward in rewards]
    return [reward for reward in found if reward.weight > 0 and reward.scope == "trajectory"]


def _name(thing: object) -> str:
    return getattr(thing, "__name__", type(thing).__name__)
