"""Samples with one engine in this process: agent loops and rewards run concurrently on one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rlcore.abilities import Described, KeepsGroups, LimitedEngine, RestartableEngine, ServersConfig, SleepingEngine
from rlcore.config.schema import Table
from rlcore.episodes.calls import CallFailed, call, describe, together
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.rewards import SelectedReward, raise_refusal
from rlcore.episodes.scoring import Scorer
from rlcore.errors import EngineError
from rlcore.event_loop import EventLoop
from rlcore.plugin_calls import is_interrupt
from rlcore.session.processes import world_size
from rlcore.specs import EnvironmentSpec
from rlcore.timing import add_time, collected
from rlcore.transport.served import Servers
from rlcore.types import (
    Boundary,
    Completion,
    Failure,
    Group,
    Prompt,
    RolloutKey,
    RolloutRequest,
    Sampling,
    Stop,
    Task,
    Trajectory,
    derive_seed,
)

from rlcore_rollout.completions import Completions
from rlcore_rollout.engines.context import CHECK_SESSION
from rlcore_rollout.images import ImagePool
from rlcore_rollout.loop import AgentLoop, Limits
from rlcore_rollout.model_client import ChatClient, TokenClient
from rlcore_rollout.sampler.engine_client import answer_of, make_model_client, sampling_of
from rlcore_rollout.sampler.outcome import report_outcome, rollout_meter
from rlcore_rollout.sampler.shared_sandbox import SharedSandbox
from rlcore_rollout.threads import GrowingThreads

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment
    from rlcore.contracts import ChatFormat, WeightSource
    from rlcore.runs.progress import Meter, Report
    from rlcore.session.components import RunComponents


Ended = Callable[[Sequence[Trajectory]], None]
"""Is called with the trajectories of an episode."""


class LocalSamplerConfig(Table):
    """No options: ``rollout.concurrency`` limits how many trajectories run at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What the trajectories of one environment share."""

    agent_loop: AgentLoop
    named: str
    """The environment and its plugin, for messages."""
    scorer: Scorer
    places: asyncio.Semaphore
    """Limits the concurrent trajectories of the environment."""


class LocalSampler:
    """Samples groups with one engine (`rlcore.contracts.TokenSampler`).

    A group ends when its last trajectory is scored; groups do not wait for each other.

    Args:
        components: the components of the run
        source: the weights of the policy
        report: shows the progress and messages
        samplers: number of samplers of the run, if each has its own copy of the weights in another process than the
            trainer; None for the sampler of a process of the trainer
    """

    def __init__(
        self, components: RunComponents, source: WeightSource, report: Report, *, samplers: int | None = None
    ) -> None:
        self._components, self._report, self._samplers = components, report, samplers
        self._keeper = report if isinstance(report, KeepsGroups) else None
        self._rollout = components.config.rollout
        live = samplers is None and components.config.schedule.ahead > 0
        self._client = make_model_client(components, source, sampled_during_updates=live)
        self._engine = self._client.engine
        if isinstance(self._client, TokenClient) and isinstance(self._client.chat_format, Described):
            for line in self._client.chat_format.description():
                report.say(line)
        limit = self._engine.max_concurrency if isinstance(self._engine, LimitedEngine) else None
        self._concurrency = min([self._rollout.concurrency, *filter(None, [limit])])
        self._slots = asyncio.Semaphore(self._concurrency)
        self._stages = {environment.name: self._stage(environment) for environment in components.environments}
        self._sandbox = SharedSandbox(components, report)
        self._closed = False
        self._loop = EventLoop(GrowingThreads())

    def _stage(self, environment: ResolvedEnvironment) -> _Stage:
        components, rollout = self._components, self._rollout
        spec = components.registry.spec("environment", environment.id)
        assert isinstance(spec, EnvironmentSpec)
        return _Stage(
            agent_loop=AgentLoop(
                make_environment=partial(components.environment, environment.name),
                model_client=self._client,
                blocking=spec.blocking or environment.is_hosted,
                limits=Limits(
                    environment_timeout_s=rollout.environment_timeout_s,
                    engine_timeout_s=rollout.engine_timeout_s,
                ),
            ),
            named=components.registry.named("environment", environment.id),
            scorer=Scorer(
                components.rewards(environment.name),
                timeout_s=rollout.reward_timeout_s,
                concurrency=rollout.concurrency,
            ),
            places=asyncio.Semaphore(self._places(environment, spec)),
        )

    def _places(self, environment: ResolvedEnvironment, spec: EnvironmentSpec) -> int:
        """The number of trajectories of an environment at a time. All samplers share what servers offer."""
        shared = [Servers(environment.servers, spec.id)] if environment.servers else []
        sandbox = self._components.resolved.options.get("sandbox")
        if isinstance(sandbox, ServersConfig):  # waiting for a session counts against the time limit of a step
            shared.append(Servers(sandbox.servers, None, "sandbox"))
        shares = (each.capacity() // (self._samplers or world_size()) for each in shared)
        return min([spec.max_concurrency or self._concurrency, *(max(1, share) for share in shares)])

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use. Raises `EngineError` for an engine that takes messages."""
        return self._tokens.chat_format

    @property
    def _tokens(self) -> TokenClient:
        """The client of an engine that takes tokens. Raises `EngineError` for one that takes messages."""
        if isinstance(self._client, TokenClient):
            return self._client
        raise EngineError(f"the engine {self._rollout.engine!r} takes messages, not tokens")

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        """Start the trajectories of a task, and return their future group.

        The future fails if the engine died or a reward cannot go on. Other failures are stored in the trajectories. The
        weights may be updated meanwhile.

        Args:
            task: the task
            key: number and purpose of the trajectories, which key their randomness
            place: position among the tasks of the key, which distinguishes them; the engine may use this order
        """
        return self._loop.submit(self._submitted(task, key, place))

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks, independent of the order in which they finish.

        Raises `EngineError` when the engine died or failed in every trajectory, and the `UserError` of an unusable
        endpoint, also that of a reward if a trajectory is not scored. Other failures are stored in the trajectories.
        """
        groups = self._loop.run(self._collect(request))
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        self.require_services(trajectories)
        report_outcome(trajectories, self._report)
        return groups

    def require_services(self, trajectories: Sequence[Trajectory]) -> None:
        """Check that engine, endpoint and rewards can go on. Raises as `collect`."""
        if isinstance(self._client, ChatClient) and self._client.engine.refusal is not None:
            raise self._client.engine.refusal
        if isinstance(self._engine, RestartableEngine) and self._engine.failure is not None:
            raise EngineError(self._engine.failure)
        raise_refusal(self._rewards(), trajectories)

    def update_weights(self, source: WeightSource) -> int:
        """Load the current weights of the policy into the engine, and return their version."""
        version: int = self._loop.run(answer_of(self._tokens.engine.load_weights, source))
        return version

    def completions(self, prompt: Prompt, sampling: Sampling) -> Sequence[Completion]:
        """Sample one completion directly from the engine, within the deadline of a generation."""
        return [self._loop.run(self._generate(prompt, sampling, self._rollout.engine_timeout_s))]

    def close(self) -> None:
        """Cancel what was submitted, and close the engine. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._loop.cancel()
        try:
            for reward in self._rewards():
                self._loop.run(reward.close())
            self._loop.run(self._sandbox.close())
        finally:
            try:
                self._loop.run(answer_of(self._engine.close))
            finally:
                self._loop.close()

    def _rewards(self) -> Iterator[SelectedReward]:
        for name in self._stages:
            yield from self._components.rewards(name)

    async def _generate(self, prompt: Prompt, sampling: Sampling, timeout_s: float) -> Completion:
        client, session = self._tokens, CHECK_SESSION
        try:
            completion: Completion = await call(
                client.engine_name, client.engine.generate, prompt, sampling, timeout_s=timeout_s, session=session
            )
        except CallFailed as failure:
            raise EngineError(str(failure)) from failure
        finally:
            await answer_of(self._engine.release, session)
        if flaw := client.flaw_in(completion, sampling):
            raise EngineError(f"{client.engine_name} returned {flaw}")
        return completion

    async def _submitted(self, task: Task, key: RolloutKey, place: int) -> Group:
        group = await self._group(task, key, place, ended=lambda _: None)
        self.require_services(group.trajectories)
        return group

    async def _collect(self, request: RolloutRequest) -> list[Group]:
        meter = rollout_meter(request, self._report)

        def ended(trajectories: Sequence[Trajectory]) -> None:
            meter.advance(tokens=sum(trajectory.sampled_tokens for trajectory in trajectories))

        try:
            with meter, _refreshed(meter):
                return await asyncio.gather(
                    *(self._kept(task, request, place, ended=ended) for place, task in enumerate(request.tasks))
                )
        finally:
            if request.purpose == "train" and isinstance(self._engine, SleepingEngine):
                await self._engine.sleep()

    async def _kept(self, task: Task, key: RolloutKey, place: int, *, ended: Ended) -> Group:
        """The group of a task, which is stored as soon as it ends if the report keeps groups."""
        group = await self._group(task, key, place, ended=ended)
        if self._keeper is not None:
            self._keeper.group_finished(key.purpose, group)
        return group

    async def _group(self, task: Task, key: RolloutKey, place: int, *, ended: Ended) -> Group:
        """Run the episodes of a task and score them; ``ended`` is called for each before it is scored.

        If episodes have several roles, siblings are numbered in the order of their episodes.
        """
        images = ImagePool(self._client.fit)
        episodes = await together(
            *(
                self._episode(task, key, sibling, f"{key.purpose}-{key.step}-{place:08d}-{sibling:06d}", images, ended)
                for sibling in range(key.group_size)
            )
        )
        trajectories = tuple(trajectory for episode in episodes for trajectory in episode)
        if len(trajectories) > key.group_size:
            trajectories = tuple(each.replace(sibling=number) for number, each in enumerate(trajectories))
        return await self._stages[task.environment].scorer.settle(Group(task=task, trajectories=trajectories))

    async def _episode(
        self,
        task: Task,
        key: RolloutKey,
        sibling: int,
        session: str,
        images: ImagePool,
        ended: Ended,
    ) -> Sequence[Trajectory]:
        """Run and score an episode. The names of sessions sort in logical order, which an engine may use."""
        seeds = (key.seed, key.purpose, key.step)
        completions = Completions(
            model_client=self._client,
            sampling=replace(self._sampling(key), seed=derive_seed(*seeds, task.key, sibling)),
            session=session,
            images=images,
            slots=self._slots,
            timeout_s=self._rollout.engine_timeout_s,
        )
        with collected() as times:
            first, *others = await self._acted_and_scored(task, key, sibling, completions, ended)
        counts = {**first.metrics, **completions.counts}
        return [first.replace(metrics=counts, times=tuple(times)), *others]

    async def _acted_and_scored(
        self,
        task: Task,
        key: RolloutKey,
        sibling: int,
        completions: Completions,
        ended: Ended,
    ) -> Sequence[Trajectory]:
        stage = self._stages[task.environment]
        context: EpisodeContext | None = None
        start, began = time.time(), time.perf_counter()
        try:
            async with stage.places, self._slots:
                add_time("queue", "", start, time.perf_counter() - began)
                context = EpisodeContext(  # here, because its time limit starts
                    task,
                    sibling=sibling,
                    seed=derive_seed(key.seed, key.purpose, key.step),
                    timeout_s=self._rollout.trajectory_timeout_s,
                    complete=completions,
                    open_sandbox=self._sandbox.open,
                )
                trajectories = await self._act(key, completions, context)
            ended(trajectories)
            return await together(*(stage.scorer.score(each, task, context) for each in trajectories))
        finally:
            if context is not None:
                await self._leave(context)

    def _sampling(self, key: RolloutKey) -> Sampling:
        """Return the sampling parameters of the run, without a seed, with those that the key overrides."""
        return replace(sampling_of(self._rollout, self._client), **key.sampling)

    async def _leave(self, context: EpisodeContext) -> None:
        """Close what an episode has opened. A failure is reported, and does not change its outcome."""
        try:
            await call("the end of the episode", context.aclose, timeout_s=self._rollout.environment_timeout_s)
        except CallFailed as failed:
            context.logger.warning("task %s, sibling %d: %s", context.task.id, context.sibling, failed)

    async def _act(self, key: RolloutKey, given: Completions, context: EpisodeContext) -> Sequence[Trajectory]:
        """Run one episode."""
        task, sibling = context.task, context.sibling
        stage = self._stages[task.environment]
        try:
            ended = await stage.agent_loop.run(
                context,
                environment_seed=derive_seed(key.seed, "environment", key.step, task.key),
                sampling=given.sampling,
                session=given.session,
                images=given.images,
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            # The boundary of a trajectory: an error is reported and does not affect other trajectories.
            failure = Failure(boundary=Boundary.ENVIRONMENT, message=f"the agent loop raised {describe(error)}")
            lost = Trajectory(
                task_id=task.id, sibling=sibling, stop=Stop.CANCELLED, failure=failure, sampling=given.sampling
            )
            ended = (lost,)
        found = ended[0].failure
        if found is None or found.boundary is not Boundary.ENVIRONMENT:
            return ended
        named = replace(found, message=f"{stage.named}: {found.message}")
        return [trajectory.replace(failure=named) for trajectory in ended]


@contextmanager
def _refreshed(meter: Meter) -> Iterator[None]:
    """Show the passing time also while no trajectory ends."""

    async def refresh() -> None:
        while True:
            await asyncio.sleep(1.0)
            meter.refresh()

    task = asyncio.get_running_loop().create_task(refresh())
    try:
        yield
    finally:
        task.cancel()
