"""The conformance checks for environments."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlcore import event_loop
from rlcore.contracts import Environment, Sandbox, Solvable
from rlcore.errors import DataError
from rlcore.harnesses import Harness
from rlcore.images import check_image
from rlcore.plugins.registry import Registry
from rlcore.session.sandboxes import strongest
from rlcore.specs import EnvironmentSpec
from rlcore.testing.calling import DEADLINE_S, Findings, call, component, select_reward
from rlcore.testing.episodes import Oracle, Stage, is_end, outcome_of, silence, then_silence
from rlcore.testing.harnesses import HarnessChecks
from rlcore.testing.hostile import hostile_actions, hostile_images
from rlcore.testing.leaks import growth
from rlcore.types import ImagePart, Message, Observation, SandboxLimits, Step, Task, from_json, media_hash, to_json

if TYPE_CHECKING:
    from rlcore.episodes.rewards import SelectedReward

UNKNOWN_IMAGE = (
    "refers to an image that neither the task nor an observation provides: add its bytes to Observation.images"
)
TOGETHER = 8
"""Number of episodes that must be able to run concurrently."""


def check_environment(
    environment: str | Callable[[], Environment],
    *,
    options: Mapping[str, Any] | None = None,
    tasks: Sequence[Task] | None = None,
    data: Mapping[str, Any] | None = None,
    rewards: Sequence[str | SelectedReward] = (),
    oracle: Oracle | None = None,
    needs_oracle: bool = True,
    sandbox: Callable[[SandboxLimits], Sandbox] | None = None,
) -> None:
    """Raise an `AssertionError` that lists every contract violation of the environment.

    The checks cover:

    - The observation of a reset is reproducible from its seed and leaves Python's global random state alone.
    - Observations can be converted to JSON and back, contain only new messages and include their images.
    - An ideal episode scores the maximum of every reward, and silence scores the minimum. Rewards that declare
      ``rewards_silence`` are only called.
    - Images can be decoded, and an unusable image of a task does not make an episode hang.
    - No action makes the environment raise, or end the episode without a message.
    - A step after the end does not continue the episode.
    - ``close`` may be called at any time.
    - Eight episodes run concurrently.
    - Nothing leaks, including temporary files, and nothing is written to the scratch folder of the context after the
      episode.

    A `rlcore.harnesses.Harness` is checked with a policy that says nothing, and with one that does not answer: its
    episodes end, ``close`` is possible without an episode, eight run concurrently, and nothing leaks.

    Args:
        environment: an id of ``rlcore plugins list``, ``module:Class``, or a function that creates an environment.
        options: keys of the ``[environment]`` table, for an id.
        tasks: the tasks to use; by default the first three of the dataset with the same id, made from ``data``.
        data: keys of the ``[data]`` table.
        rewards: ids, or rewards of a run, that score an ideal episode and silence.
        oracle: returns the assistant's messages of an ideal episode. Defaults to the environment's own method
            ``oracle(task)``.
        needs_oracle: False for an environment without a known ideal episode.
        sandbox: creates the sandbox of the episodes. By default, an environment whose spec sets ``runs_code`` gets the
            strongest one that is available.
    """
    stage, together, tasks = _prepare(environment, options, tasks, data)
    findings = Findings(f"The environment {environment if isinstance(environment, str) else _name(environment)}")
    make_sandbox = sandbox or (_strongest_sandbox() if _runs_code(environment) else None)

    async def run() -> None:
        used = make_sandbox(SandboxLimits()) if make_sandbox is not None else None
        own = replace(stage, open_sandbox=used.open if used is not None else None)
        try:
            if isinstance(await call(own.make), Harness):
                await HarnessChecks(own, together, tasks, findings).run()
            else:
                await _Checks(own, together, tasks, _select(rewards), oracle, needs_oracle, findings).run()
        finally:
            if used is not None:
                await used.close()

    event_loop.run(run())
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
        if not self.expect(bool(self.tasks), "there is no task to run the checks on"):
            return
        if self.oracle is None:
            made = await call(self.stage.make)
            self.oracle = made.oracle if isinstance(made, Solvable) else None
        if self.oracle is None and self.needs_oracle:
            sentence = "no ideal episode is known: add a method oracle(task) that returns the assistant's messages"
            self.expect(False, sentence)
        for task in self.tasks:
            await attempt(f"reset of task {task.id!r}", self.reset_repeats(task))
            await attempt(f"silence on task {task.id!r}", self.silence_scores_the_minimum(task))
            if self.oracle is not None:
                await attempt(
                    f"the ideal episode of task {task.id!r}", self.oracle_scores_the_maximum(task, self.oracle)
                )
        await attempt("a hostile action", self.hostile_actions_are_answered(self.tasks[0]))
        await attempt("a hostile image", self.hostile_images_are_answered(self.tasks[0]))
        await attempt("a step after the end", self.the_end_is_the_end(self.tasks[0]))
        await attempt("close", self.close_comes_at_any_time(self.tasks[0]))
        await attempt(f"{self.together} concurrent episodes", self.episodes_keep_apart_and_leak_nothing())

    async def reset_repeats(self, task: Task) -> None:
        """The same seed gives the same observation, regardless of Python's global random state."""
        outside = random.getstate()
        random.seed()  # a state that no reset can reach by chance
        before = random.getstate()
        try:
            first = (await self.stage.play(task, ())).first
            self.expect(
                random.getstate() == before,
                "reset changes Python's global random state: use a separate random.Random(seed)",
            )
        finally:
            random.setstate(outside)
        second = (await self.stage.play(task, ())).first
        self.expect(
            first == second,
            f"reset is not reproducible: the first observation of task {task.id!r} differs between two calls with "
            "the same seed, but all trajectories of a group must start from the same state",
        )
        self.expect(bool(first.messages), f"the first observation of task {task.id!r} has no messages")
        provided = {media_hash(image) for image in (*task.images, *first.images)}
        shown = {name for message in first.messages for name in message.images}
        self.expect(shown <= provided, f"the first observation of task {task.id!r} {UNKNOWN_IMAGE}")
        self._observation("reset", first)

    async def silence_scores_the_minimum(self, task: Task) -> None:
        """An agent that says nothing reaches an end and scores the minimum."""
        episode = await self.stage.play(task, silence(), rewards=self.rewards)
        if not self.expect(episode.ended, f"the episode does not end after {len(episode.steps)} empty answers"):
            return
        for reward, value in zip(self.rewards, episode.values, strict=True):
            self.expect(
                reward.rewards_silence or value == reward.minimum or math.isinf(reward.minimum),
                f"an empty answer must score the minimum of {reward.id} ({reward.minimum:g}), but it scores {value}",
            )

    async def oracle_scores_the_maximum(self, task: Task, oracle: Oracle) -> None:
        """An ideal episode ends and scores the maximum."""
        episode = await self.stage.play(task, then_silence(await call(oracle, task)), rewards=self.rewards)
        self.expect(
            episode.tidy,
            "the scratch folder of the context exists after the episode: do not write to it after close",
        )
        self.expect(episode.ended, f"the ideal episode of task {task.id!r} does not end")
        shown = {image for message in episode.trajectory.messages for image in message.images}
        self.expect(
            shown <= set(episode.trajectory.images),
            f"a message {UNKNOWN_IMAGE}",
        )
        for step in episode.steps:
            self._observation("step", step.observation)
        for reward, value in zip(self.rewards, episode.values, strict=True):
            self.expect(
                reward.rewards_silence or value == reward.maximum or math.isinf(reward.maximum),
                f"the ideal episode must score the maximum of {reward.id} ({reward.maximum:g}), but it scores {value} "
                f"on task {task.id!r}",
            )

    async def hostile_actions_are_answered(self, task: Task) -> None:
        """Every model output gets a response: no exception, and no end without a message."""
        tools = (await self.stage.play(task, ())).first.tools
        for name, action in hostile_actions(tools):
            try:
                episode = await self.stage.play(task, [action])
            except Exception as error:
                self.expect(False, f"{name} makes step raise {type(error).__name__}: {error}")
                continue
            step = episode.steps[0]
            self._observation("step", step.observation)
            silent = step.terminated and not step.observation.messages and step.stop is None
            self.expect(
                not (silent and action.tool_calls and tools),
                f"{name} ends the episode without a message: return a message that describes the error",
            )

    async def the_end_is_the_end(self, task: Task) -> None:
        """After the end, a step raises an exception or reports the end again."""
        environment = await call(self.stage.make, threaded=self.stage.blocking)
        context = self.stage.context(task)
        try:
            await self.stage.reset(environment, task, context, 7)
            for action in silence():
                step: Step = await call(environment.step, action, threaded=self.stage.blocking)
                if is_end(step):
                    break
            try:
                after = await call(environment.step, Message(role="assistant"), threaded=self.stage.blocking)
            except Exception:
                return  # raising is allowed
            self.expect(is_end(after), "a step after the end continues the episode")
        finally:
            await call(environment.close, threaded=self.stage.blocking)
            await context.aclose()

    async def close_comes_at_any_time(self, task: Task) -> None:
        """``close`` works before the reset and in the middle of an episode."""
        for when, resets in (("before the reset", False), ("in the middle of an episode", True)):
            environment = await call(self.stage.make, threaded=self.stage.blocking)
            context = self.stage.context(task)
            if resets:
                await self.stage.reset(environment, task, context, 7)
            try:
                await call(environment.close, threaded=self.stage.blocking)
            except Exception as error:
                self.expect(False, f"close {when} raises {type(error).__name__}: {error}")
            await context.aclose()

    async def episodes_keep_apart_and_leak_nothing(self) -> None:
        """Concurrent episodes give the same results as single ones, and leak nothing."""
        tasks = [self.tasks[index % len(self.tasks)] for index in range(self.together)]
        actions = [await self._actions(task) for task in tasks]
        play, rewards = self.stage.play, self.rewards
        alone = [await play(task, played, rewards=rewards) for task, played in zip(tasks, actions, strict=True)]

        async def beside_each_other() -> None:
            games = (play(task, played, rewards=rewards) for task, played in zip(tasks, actions, strict=True))
            for task, single, beside in zip(tasks, alone, await asyncio.gather(*games), strict=True):
                self.expect(
                    single.first == beside.first
                    and [outcome_of(step) for step in single.steps] == [outcome_of(step) for step in beside.steps],
                    f"the first observation, the rewards or the end of task {task.id!r} differ when {self.together} "
                    "episodes run concurrently: they share state",
                )
                for reward, value, other in zip(rewards, single.values, beside.values, strict=True):
                    self.expect(
                        value == other,
                        f"{reward.id} gives another value when {self.together} episodes run concurrently",
                    )

        for name, count in (await growth(beside_each_other)).items():
            self.expect(False, f"each round of {self.together} closed episodes leaks {count} {name}")

    async def _actions(self, task: Task) -> list[Message]:
        return list(then_silence(await call(self.oracle, task) if self.oracle is not None else ()))

    async def hostile_images_are_answered(self, task: Task) -> None:
        """A task with an image that cannot be used fails or continues, but does not hang."""
        for name, data in hostile_images() if task.images else ():
            try:
                await self.stage.play(_with_image(task, data), [Message(role="assistant")])
            except TimeoutError:
                self.expect(False, f"a task with {name} gets no answer within {DEADLINE_S:g} s")
            except Exception:
                continue  # raising is allowed: the trajectory is not scored

    def _observation(self, method: str, observation: Observation) -> None:
        """An observation is plain data that contains only new messages."""
        try:
            plain = json.dumps(to_json(observation))
            back = from_json(Observation, json.loads(plain))
        except Exception as error:
            self.expect(False, f"an observation of {method} is not plain data: {type(error).__name__}: {error}")
            return
        same = (tuple(back.messages), tuple(back.tools)) == (tuple(observation.messages), tuple(observation.tools))
        self.expect(same, f"an observation of {method} is not plain data: it changes when converted to JSON and back")
        self.expect(isinstance(observation.messages, tuple), f"the messages of {method} must be a tuple")
        for image in observation.images:
            try:
                check_image(image)
            except DataError as error:
                self.expect(False, f"an image of {method} cannot be used: {error.message}, found {error.found}")
        if method == "step":
            roles = {message.role for message in observation.messages}
            self.expect(
                "assistant" not in roles,
                "step returns an assistant message: an observation contains only the new messages, not the action",
            )


def _with_image(task: Task, data: bytes) -> Task:
    """The task with one image in place of each of its images."""
    messages = [
        message
        if isinstance(message.content, str)
        else replace(
            message,
            content=tuple(ImagePart.of(data) if isinstance(part, ImagePart) else part for part in message.content),
        )
        for message in task.messages
    ]
    return replace(task, messages=tuple(messages), images=(data,))


def _prepare(
    environment: str | Callable[[], Environment],
    options: Mapping[str, Any] | None,
    tasks: Sequence[Task] | None,
    data: Mapping[str, Any] | None,
) -> tuple[Stage, int, Sequence[Task]]:
    """Return how to create the environment, how many may be alive, and the tasks to use."""
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


def _runs_code(environment: str | Callable[[], Environment]) -> bool:
    if not isinstance(environment, str):
        return False
    spec = Registry().spec("environment", environment)
    return isinstance(spec, EnvironmentSpec) and spec.runs_code


def _strongest_sandbox() -> Callable[[SandboxLimits], Sandbox] | None:
    """The sandbox that ``sandbox.id = "auto"`` uses; None if there is none."""
    registry = Registry()
    choice = strongest(registry)
    if choice is None:
        return None
    target = registry.load("sandbox", choice.spec.id)
    return lambda limits: target(None, limits)


def _select(rewards: Sequence[str | SelectedReward]) -> list[SelectedReward]:
    """Return weighted rewards of single trajectories. Rewards given by id use their default options."""
    found = [select_reward(reward) if isinstance(reward, str) else reward for reward in rewards]
    return [reward for reward in found if reward.weight > 0 and reward.scope == "trajectory"]


def _name(thing: object) -> str:
    return getattr(thing, "__name__", type(thing).__name__)
