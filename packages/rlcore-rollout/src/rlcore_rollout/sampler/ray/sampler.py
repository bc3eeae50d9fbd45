"""Samples with workers of a Ray cluster: each group is sampled and scored by one of them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcore.abilities import KeepsGroups
from rlcore.errors import EngineError
from rlcore.types import Completion, Group, Prompt, RolloutRequest, Sampling

from rlcore_rollout.sampler.outcome import report_outcome, rollout_meter
from rlcore_rollout.sampler.ray.pool import Worker, WorkerPool
from rlcore_rollout.sampler.ray.weights import pack

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat, WeightSource
    from rlcore.runs.progress import Meter, Report
    from rlcore.session.components import RunComponents

ATTEMPTS = 3
"""Workers on which a group may fail."""
MOST_CALLS = 900
"""Groups of a worker at a time. An actor of Ray makes at most 1,000 calls at a time, and must answer heartbeats."""


class RaySampler:
    """Samples groups in other processes (`rlcore.contracts.TokenSampler`).

    Randomness is keyed by task and sibling, so it does not matter which worker samples a group. If a worker is lost,
    others sample its groups again.

    Args:
        components: the components of the run
        source: the weights of the policy
        report: shows the progress and messages
    """

    def __init__(self, components: RunComponents, source: WeightSource, report: Report) -> None:
        self._components, self._source, self._report = components, source, report
        self._keeper = report if isinstance(report, KeepsGroups) else None
        self._concurrency = components.config.rollout.concurrency
        self._started: WorkerPool | None = None
        if not components.trial:
            self._started = WorkerPool(
                components.options("sampler"),
                components.plan,
                source.folder,
                lambda put: pack(source, put, wanted=(False, True)),
                report,
            )

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

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks. Raises as `LocalSampler.collect`."""
        with rollout_meter(request, self._report) as meter:
            groups = self._collect(request, meter)
        report_outcome([trajectory for group in groups for trajectory in group.trajectories], self._report)
        return groups

    def _collect(self, request: RolloutRequest, meter: Meter) -> list[Group]:
        pool, tasks, key = self._pool, request.tasks, request.key
        # One group more than the limit, so that a worker has work while a result travels.
        most = min(math.ceil(self._concurrency / request.group_size) + 1, MOST_CALLS)
        waiting, found = deque(range(len(tasks))), dict[int, Group]()
        calls, failures = dict[Any, tuple[Worker, int]](), Counter[int]()
        try:
            while len(found) < len(tasks):
                pool.attend()
                pool.require_workers()
                for reference, (worker, place) in list(calls.items()):
                    if worker.lost:
                        del calls[reference]
                        failures[place] += 1
                        if failures[place] == ATTEMPTS:
                            raise EngineError(f"{ATTEMPTS} workers were lost with the same group: {worker.lost}")
                        waiting.appendleft(place)
                busy = Counter(worker for worker, _ in calls.values())
                while waiting and busy[worker := min(pool.workers, key=lambda one: busy[one])] < most:
                    place = waiting.popleft()
                    calls[worker.actor.sample.remote(tasks[place], key, place)] = worker, place
                    busy[worker] += 1
                for reference in pool.wait(list(calls)):
                    worker, place = calls[reference]
                    if worker.lost:
                        continue
                    try:
                        found[place] = pool.get(reference)
                    except EngineError as error:
                        pool.lose(worker, str(error))
                        continue
                    del calls[reference]
                    self._ended(found[place], request, meter)
                meter.refresh()
        except EngineError:
            for worker, _ in calls.values():  # weights cannot change while it samples
                pool.lose(worker, "its groups are no longer needed")
            raise
        return [found[place] for place in range(len(tasks))]

    def _ended(self, group: Group, request: RolloutRequest, meter: Meter) -> None:
        """Count a group, and store it if the report keeps groups."""
        sampled = sum(trajectory.sampled_tokens for trajectory in group.trajectories)
        meter.advance(request.group_size, tokens=sampled)
        if self._keeper is not None:
            self._keeper.group_finished(request.purpose, group)

    def update_weights(self, source: WeightSource) -> int:
        """Send the current weights of the policy to all workers, and return their version."""
        pool = self._pool
        pool.load(pack(source, pool.ray.put, wanted=sorted(pool.read)))
        return source.version

    def completions(self, prompt: Prompt, sampling: Sampling) -> Sequence[Completion]:
        """One completion of each worker's engine."""
        return self._pool.ask(lambda actor: actor.complete.remote(prompt, sampling))

    def close(self) -> None:
        """End the workers. A second call does nothing."""
        if self._started is not None:
            self._started.close()
