"""Samples with workers of a Ray cluster: each group is sampled and scored by one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from rlcore.abilities import KeepsGroups
from rlcore.errors import EngineError, UserError
from rlcore.event_loop import EventLoop
from rlcore.session.processes import world_size
from rlcore.types import Completion, Group, Prompt, RolloutKey, RolloutRequest, Sampling, Task

from rlcore_rollout.sampler.outcome import report_outcome, rollout_meter
from rlcore_rollout.sampler.ray.cluster import SamplerCluster
from rlcore_rollout.sampler.ray.config import training_address
from rlcore_rollout.sampler.ray.pool import WorkerPool
from rlcore_rollout.sampler.ray.weights import pack

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat, WeightSource
    from rlcore.runs.progress import Meter, Report
    from rlcore.session.components import RunComponents

REFRESH_S = 1.0
"""Time between two looks at the clock for the progress of a rollout."""


class RaySampler:
    """Samples groups in other processes (`rlcore.contracts.TokenSampler`).

    Randomness is keyed by task and sibling, so it does not matter which worker samples a group. If a worker is lost,
    others sample its groups again. The workers are attended to in a thread, also while the run trains.

    Args:
        components: the components of the run
        source: the weights of the policy
        report: shows the progress and messages
    """

    def __init__(self, components: RunComponents, source: WeightSource, report: Report) -> None:
        self._components, self._source, self._report = components, source, report
        self._keeper = report if isinstance(report, KeepsGroups) else None
        self._started: WorkerPool | None = None
        self._closed = False
        if components.trial:
            return
        config = components.options("sampler")
        taken = world_size() if training_address(components.options("strategy")) is not None else 0
        self._cluster, self._loop = SamplerCluster(config, taken), EventLoop()
        try:
            self._started = WorkerPool(
                self._cluster,
                config,
                components.plan,
                concurrency=components.config.rollout.concurrency,
                folder=source.folder,
                packed=pack(source, self._cluster.ray.put, wanted=(False, True)),
                report=report,
            )
            self._loop.run(self._started.open())
        except BaseException:
            self.close()
            raise

    @property
    def _pool(self) -> WorkerPool:
        if self._started is None:
            raise EngineError("a dry run does not start workers")
        return self._started

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use. Raises `EngineError` for an engine that takes messages."""
        engine = self._components.engine_spec
        if engine.speaks != "tokens":
            raise EngineError(f"the engine {engine.id!r} takes messages, not tokens")
        return self._components.chat_format(self._source.folder or self._components.model_folder())

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        """The future group of a task; see `rlcore.contracts.TokenSampler.submit`."""
        return self._loop.submit(self._pool.sample(task, key, place))

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks. Raises as `LocalSampler.collect`."""
        with rollout_meter(request, self._report) as meter:
            groups = self._loop.run(self._collect(self._pool, request, meter))
        report_outcome([trajectory for group in groups for trajectory in group.trajectories], self._report)
        return groups

    async def _collect(self, pool: WorkerPool, request: RolloutRequest, meter: Meter) -> list[Group]:
        async def counted(task: Task, place: int) -> Group:
            group = await pool.sample(task, request.key, place)
            sampled = sum(trajectory.sampled_tokens for trajectory in group.trajectories)
            meter.advance(request.group_size, tokens=sampled)
            if self._keeper is not None:
                self._keeper.group_finished(request.purpose, group)
            return group

        groups = [asyncio.create_task(counted(task, place)) for place, task in enumerate(request.tasks)]
        try:
            waiting = set(groups)
            while waiting:  # all end also if one fails: a repeated request gives their sessions the same names
                ended, waiting = await asyncio.wait(waiting, timeout=REFRESH_S, return_when=asyncio.FIRST_EXCEPTION)
                for group in ended:
                    if isinstance(error := group.exception(), UserError):
                        raise error
                meter.refresh()
            return [group.result() for group in groups]
        finally:
            for group in groups:
                group.cancel()

    def update_weights(self, source: WeightSource) -> int:
        """Send the current weights of the policy to all workers, also while they sample, and return their version."""
        pool = self._pool
        self._loop.run(pool.load(pack(source, self._cluster.ray.put, wanted=sorted(pool.read))))
        return source.version

    def completions(self, prompt: Prompt, sampling: Sampling) -> Sequence[Completion]:
        """One completion of each worker's engine."""
        return self._loop.run(self._pool.ask(lambda actor: actor.complete.remote(prompt, sampling)))

    def close(self) -> None:
        """Cancel what was submitted, and end the workers. A second call does nothing."""
        if self._components.trial or self._closed:
            return
        self._closed = True
        self._loop.cancel()
        try:
            if self._started is not None:
                self._loop.run(self._started.close())
        finally:
            self._loop.close()
            self._cluster.close()
