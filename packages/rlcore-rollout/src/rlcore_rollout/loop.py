"""The agent loop of one trajectory, which alternates between environment and engine.

A failure is stored in its trajectory, which it ends. Other trajectories are not affected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from rlcore.contracts import Environment, ScoresCut
from rlcore.episodes.calls import CallFailed, call
from rlcore.episodes.context import EpisodeContext, takes_context
from rlcore.errors import EpisodeEnded, SandboxFailure, ToolFailure
from rlcore.harnesses import Harness
from rlcore.timing import timed
from rlcore.types import Boundary, Message, Observation, Sampling, Step, Stop, Trajectory
from rlcore.types.checking import flaw_in_observation, flaw_in_step

from rlcore_rollout.conversations import Conversations
from rlcore_rollout.images import EpisodeImages, ImagePool
from rlcore_rollout.model_client import ModelClient
from rlcore_rollout.trajectory_builder import End, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Deadlines of single calls. The deadline of the whole trajectory is in its `EpisodeContext`."""

    environment_timeout_s: float
    engine_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoop:
    """Runs episodes. All trajectories of a run share one object.

    Attributes:
        make_environment: creates a new environment for one trajectory
        model_client: the connection to the engine
        limits: deadlines of single calls
        blocking: whether the environment's plain methods run in threads
    """

    make_environment: Callable[[], Environment | Harness]
    model_client: ModelClient
    limits: Limits
    blocking: bool = False

    async def run(
        self,
        context: EpisodeContext,
        *,
        environment_seed: int,
        sampling: Sampling,
        session: str,
        images: ImagePool | None = None,
    ) -> tuple[Trajectory, ...]:
        """Run one episode of the task of ``context``. The caller closes the context after scoring.

        The result has one trajectory, or one for each role in which a harness has asked the policy.

        A generation that reaches its token limit ends the trajectory as ``length``: its text is kept and scored, its
        calls are not parsed, and only an environment with the method ``cut`` receives it (`ScoresCut`). A context
        without room for another token also ends the trajectory as ``length``. Messages after the last generation have
        no tokens, because the model never saw them. ``metrics`` contains ``turns``, ``step_reward`` (the sum of the
        step rewards, if the environment returns any), the sums of the numbers in the steps' ``info``,
        ``closing_failures`` and ``placeholder_tokens`` (those that the policy wrote) if there are any, and the token
        counts that a chat engine reports.

        Images are fitted once, before the model sees them. The messages and images of the trajectory are the fitted
        ones.

        Args:
            context: task, sibling and deadline of the episode
            environment_seed: of the environment's ``reset``
            sampling: of every generation
            session: the engine's name for the trajectory; later segments append ``/1``, ``/2``, …
            images: shared with the siblings, so that equal images are fitted once and are one object
        """
        task = context.task
        images = images or ImagePool(self.model_client.fit)
        records = [Record(name=session, images=EpisodeImages(images, task.images), sampling=sampling)]
        closing: list[str] = []
        try:
            await self._episode(records, context, environment_seed, sampling, closing)
        except End as end:
            failure = end.failure
            if failure is not None:
                failure = replace(failure, message="; ".join([failure.message, *closing]))
            elif closing:
                records[0].count("closing_failures", float(len(closing)))
                context.logger.warning("task %s, sibling %d: %s", task.id, context.sibling, "; ".join(closing))
            return tuple(
                Trajectory(
                    task_id=task.id,
                    sibling=context.sibling,
                    role=record.role,
                    segments=tuple(segment.frozen() for segment in record.segments),
                    stop=end.stop if failure is not None else record.stop or end.stop,
                    failure=failure,
                    tools=record.tools,
                    images=record.images.used,
                    metrics=record.metrics,
                    sampling=record.sampling,
                )
                for record in records
            )

    async def _episode(
        self, records: list[Record], context: EpisodeContext, seed: int, sampling: Sampling, closing: list[str]
    ) -> NoReturn:
        environment = await self._ask("the environment's constructor", self.make_environment, until=context.deadline)
        try:
            if isinstance(environment, Harness) and not hasattr(environment, "reset"):
                await self._run(environment, records, context, seed, sampling, closing)
            await self._converse(environment, records[0], context, seed, sampling, closing)
        finally:
            await self._close("close", environment.close, threaded=self.blocking, closing=closing)

    async def _converse(
        self,
        environment: Environment,
        record: Record,
        context: EpisodeContext,
        seed: int,
        sampling: Sampling,
        closing: list[str],
    ) -> NoReturn:
        """Alternate between the environment and the engine."""
        until = context.deadline
        try:
            given: dict[str, Any] = {"context": context} if takes_context(environment.reset) else {}
            observation = await self._ask("reset", environment.reset, context.task, until=until, seed=seed, **given)
            _expect("reset", observation, Observation, flaw_in_observation)
            if observation.context is not None:
                raise End.failed(Boundary.ENVIRONMENT, "reset must not set context: there is nothing to rewrite")
            record.tools = observation.tools
            while True:
                session = record.session
                action: Message | None = None
                try:
                    self.model_client.observe(record, await record.enter(observation))
                    if record.session != session:
                        await self._release(session, closing)
                    with timed("turn"):
                        action, finish_reason = await self.model_client.generate(
                            record, sampling, timeout_s=self.limits.engine_timeout_s, until=until
                        )
                    if finish_reason == "length":
                        raise End(Stop.LENGTH)
                except End as end:
                    if end.stop is Stop.LENGTH:
                        await self._cut(environment, record, action, until)
                    raise
                step = await self._ask("step", environment.step, action, until=until)
                _expect("step", step, Step, flaw_in_step)
                record.add_step(step)
                observation = step.observation
                if step.terminated or step.truncated or step.stop is not None:
                    if observation.messages:
                        record.add_unseen((await record.enter(observation)).messages)
                    raise End(_reason(step))
        finally:
            await self._release(record.session, closing)

    async def _cut(self, environment: Environment, record: Record, written: Message | None, until: float) -> None:
        """Ask the environment for the reward of an episode that ends at a token limit."""
        if isinstance(environment, ScoresCut) and record.answered:
            step = await self._ask("cut", environment.cut, written, until=until)
            if step is not None:
                _expect("cut", step, Step, flaw_in_step)
                record.add_step(step)

    async def _run(
        self,
        harness: Harness,
        records: list[Record],
        context: EpisodeContext,
        seed: int,
        sampling: Sampling,
        closing: list[str],
    ) -> NoReturn:
        """Answer an agent that has its own loop.

        Its conversations become the segments of a trajectory, and those of each role the segments of another one.
        """
        record = records[0]
        policy = Conversations(
            model_client=self.model_client,
            sampling=sampling,
            session=record.name,
            images=record.images,
            release=lambda session: self._release(session, closing),
            timeout_s=self.limits.engine_timeout_s,
            until=context.deadline,
        )
        step: Step | None = None
        try:
            step = await self._ask(
                "run",
                harness.run,
                context.task,
                until=context.deadline,
                timeout_s=math.inf,
                policy=policy,
                seed=seed,
                context=context,
            )
            _expect("run", step, Step, flaw_in_step)
            if step.reward is not None and policy.turns:
                policy.reward(step.reward)
            elif step.reward is not None and len(policy.by_role) > 1:
                raise End.failed(Boundary.ENVIRONMENT, "run returned a reward, but the policy answered only in roles")
        except ValueError as error:  # a sum that is not finite
            raise End.failed(Boundary.ENVIRONMENT, str(error)) from error
        except End as end:
            players = policy.by_role.values()
            refused = any(each.refused for each in players) and (len(players) == 1 or _was_refused(end))
            if not refused and all(each.failure is None for each in players):
                raise
        finally:
            await policy.close()
            asked = {role: each for role, each in policy.by_role.items() if each.turns or each.stop is not None}
            if asked:
                records[:] = [_joined(record, role, each) for role, each in asked.items()]
        if failure := next((each.failure for each in policy.by_role.values() if each.failure is not None), None):
            raise End(Stop.CANCELLED, failure)
        if not asked:
            raise End.failed(Boundary.ENVIRONMENT, "the harness did not ask the policy")
        for made in records:
            if step is not None and made.segments:
                made.add_step(replace(step, reward=None))
                if step.observation.messages:
                    made.add_unseen((await made.enter(step.observation)).messages)
        raise End(_reason(step) if step is not None else Stop.DONE)

    async def _ask(
        self,
        name: str,
        method: Callable[..., Any],
        *arguments: Any,
        until: float,
        timeout_s: float | None = None,
        **keywords: Any,
    ) -> Any:
        """Call the environment. A failure ends the trajectory."""
        timeout_s, threaded = timeout_s or self.limits.environment_timeout_s, self.blocking
        try:
            with timed("make" if method is self.make_environment else name):
                return await call(
                    name, method, *arguments, timeout_s=timeout_s, until=until, threaded=threaded, **keywords
                )
        except CallFailed as failed:
            boundary = Boundary.ENVIRONMENT
            if failed.timed_out:
                boundary = Boundary.TIMEOUT
            elif isinstance(failed.__cause__, SandboxFailure):
                boundary = Boundary.SANDBOX
            elif isinstance(failed.__cause__, ToolFailure):
                boundary = Boundary.TOOL
            raise End.failed(boundary, str(failed)) from failed

    async def _release(self, session: str, closing: list[str]) -> None:
        await self._close("release", self.model_client.engine.release, session, threaded=False, closing=closing)

    async def _close(
        self, name: str, method: Callable[..., Any], *arguments: Any, threaded: bool, closing: list[str]
    ) -> None:
        """Free a resource. A failure is added to ``closing``."""
        try:
            await call(name, method, *arguments, timeout_s=self.limits.environment_timeout_s, threaded=threaded)
        except CallFailed as failed:
            closing.append(str(failed))


def _was_refused(end: End) -> bool:
    """Whether a harness failed because the policy no longer answered.

    A harness that goes on in another role may fail for another reason later.
    """
    error: BaseException | None = end
    while error is not None and not isinstance(error, EpisodeEnded):
        error = error.__cause__ or error.__context__
    return error is not None


def _joined(record: Record, role: str, conversations: Conversations) -> Record:
    """The record of a role."""
    made = replace(record, role=role, stop=conversations.stop, sampling=conversations.sampling, segments=[], metrics={})
    made.join(conversations.records())
    if conversations.step_reward is not None:
        made.count("step_reward", conversations.step_reward)
    return made


def _reason(step: Step) -> Stop:
    """Why the environment ended the episode."""
    return step.stop or (Stop.MAX_TURNS if step.truncated and not step.terminated else Stop.DONE)


def _expect(name: str, value: Any, kind: type, flaw_in: Callable[[Any], str | None]) -> None:
    """End the episode unless the environment returned a valid object of this type."""
    if not isinstance(value, kind):
        found = type(value).__name__
        raise End.failed(Boundary.ENVIRONMENT, f"{name} must return a {kind.__name__}, it returned a {found}")
    if flaw := flaw_in(value):
        raise End.failed(Boundary.ENVIRONMENT, f"{name} returned a {kind.__name__} with {flaw}")
