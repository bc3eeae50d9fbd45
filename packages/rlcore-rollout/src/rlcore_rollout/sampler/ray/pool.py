"""The workers of a run in a Ray cluster: their heartbeats, their replacement, their weights, and their groups.

Ray notices a process that ended. It notices neither a process that is stopped, nor within a minute a machine that is
cut off, so each worker must answer a heartbeat in time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.console.wording import counted
from rlcore.errors import EngineError, UserError
from rlcore.types import Group, RolloutKey, Task

from rlcore_rollout.sampler.ray.calls import Answer, WorkerLost, answer_to, result
from rlcore_rollout.sampler.ray.cluster import SamplerCluster
from rlcore_rollout.sampler.ray.starts import NoPlace, WorkerStart

if TYPE_CHECKING:
    from rlcore.runs.progress import Report
    from rlcore.session.plan import RunPlan

    from rlcore_rollout.sampler.ray.config import RaySamplerConfig
    from rlcore_rollout.sampler.ray.weights import PackedWeights

HEARTBEAT_S, SILENCE_S = 2.0, 10.0
"""Time until a worker answers a heartbeat, and the time without an answer after which it is replaced."""
STARTS = 3
"""Starts in succession that may fail in place of a lost worker."""
ATTEMPTS = 3
"""Workers on which a group may fail."""
MOST_CALLS = 900
"""Groups of a worker at a time. An actor of Ray makes at most 1,000 calls at a time, and must answer heartbeats."""
CLOSE_S = 15.0
"""Time for a worker to close its engine and environments."""


@dataclass(eq=False)
class Worker:
    """A running worker.

    Attributes:
        number: its number, which its replacement has, too
        actor: the Ray actor
        host: the machine
        gone: is done when it is lost, with the reason
        groups: groups that it samples
        trajectories: their trajectories
    """

    number: int
    actor: Any
    host: str
    gone: asyncio.Future[str]
    groups: int = 0
    trajectories: int = 0

    @property
    def named(self) -> str:
        """The worker, for messages."""
        return f"worker {self.number} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A group that waits for a worker."""

    task: Task
    key: RolloutKey
    place: int
    given: asyncio.Future[tuple[Worker, Answer]]


class WorkerPool:
    """Starts workers, and replaces those that are lost by new ones with the newest weights.

    All methods except the constructor run on one event loop.

    Args:
        cluster: the cluster
        config: the options of the sampler
        plan: the plan of the run
        concurrency: trajectories of a worker at a time
        folder: the model folder; None if the engine has its own model
        packed: the first weights
        report: shows messages
    """

    def __init__(
        self,
        cluster: SamplerCluster,
        config: RaySamplerConfig,
        plan: RunPlan,
        *,
        concurrency: int,
        folder: Path | None,
        packed: PackedWeights,
        report: Report,
    ) -> None:
        self._cluster, self._config, self._report, self._concurrency = cluster, config, report, concurrency
        self.read = set[bool]()
        """With which ``adapter_only`` the engines read weights."""
        self._packed = packed
        self._start = WorkerStart(cluster, config, plan, folder, lambda: self._packed, self._say)
        self._workers: list[Worker] = []
        self._waiting = deque[_Waiting]()
        self._starting, self._attending = dict[int, asyncio.Task[None]](), dict[int, asyncio.Task[None]]()
        self._said: set[str] = set()
        self._reason = ""

    async def open(self) -> None:
        """Start the workers.

        Raises:
            UserError, EngineError: one of them cannot be started.
        """
        if (shortage := self._cluster.shortage(self._config)) is not None:
            self._report.say(shortage)
        starting = [asyncio.create_task(self._first(number)) for number in range(self._config.workers)]
        try:
            await asyncio.gather(*starting)
        finally:
            await _cancelled(starting)
        hosts = Counter(worker.host for worker in self._workers)
        places = ", ".join(f"{host} ({count})" for host, count in sorted(hosts.items()))
        self._report.say(f"sampler   {counted(len(self._workers), 'worker')} of {self._cluster.named}: {places}")

    async def sample(self, task: Task, key: RolloutKey, place: int) -> Group:
        """Return the scored group of a task. If its worker is lost, another one samples it before all other groups.

        Raises:
            EngineError: several workers were lost with it, or none can be started.
            UserError: an endpoint or a reward can answer no further call.
        """
        lost = ""
        for attempt in range(ATTEMPTS):
            worker, answer = await self._given(task, key, place, first=attempt > 0)
            try:
                group: Group = await result(answer, gone=worker.gone)
            except EngineError as error:
                lost = str(error)
                self._lose(worker, lost)
            else:
                return group
        raise EngineError(f"{ATTEMPTS} workers were lost with the same group: {lost}")

    async def load(self, packed: PackedWeights) -> None:
        """Load weights in all workers, which may sample meanwhile.

        Raises:
            EngineError: an engine refuses them, or no worker has them and none can be started.
        """
        self._packed = packed
        for read in await self._asked(lambda actor: actor.load.remote(packed)):
            self.read.update(read)
        await self._require_workers()

    async def ask(self, call: Callable[[Any], Any]) -> list[Any]:
        """Return the answers of all workers to a call of their actors, without those that are lost: at least one.

        Raises:
            EngineError: the call failed, or no worker can be started.
        """
        answers = list[Any]()
        while not answers:
            await self._require_workers()
            answers = await self._asked(call)
        return answers

    async def close(self) -> None:
        """Close and end all workers."""
        await _cancelled([*self._starting.values(), *self._attending.values()])
        workers, self._workers = self._workers, []
        closing = [answer_to(worker.actor.close.remote()) for worker in workers]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_S)
        for worker in workers:
            self._cluster.kill(worker.actor)

    # Groups

    async def _given(self, task: Task, key: RolloutKey, place: int, *, first: bool) -> tuple[Worker, Answer]:
        """Wait until a worker has room for a group, and return it with its call."""
        waiting = _Waiting(task=task, key=key, place=place, given=asyncio.get_running_loop().create_future())
        (self._waiting.appendleft if first else self._waiting.append)(waiting)
        self._assign()
        return await waiting.given

    def _assign(self) -> None:
        """Give waiting groups to the workers with the fewest trajectories, in order."""
        while self._waiting and self._workers:
            waiting, worker = self._waiting[0], min(self._workers, key=lambda one: one.trajectories)
            size = waiting.key.group_size
            # One group more than the limit, so that a worker has work while a result travels.
            if worker.trajectories >= self._concurrency + size or worker.groups >= MOST_CALLS:
                return
            self._waiting.popleft()
            if waiting.given.done():  # the caller no longer waits
                continue
            try:
                answer = answer_to(worker.actor.sample.remote(waiting.task, waiting.key, waiting.place))
            except Exception as error:  # this may be the callback of another group
                waiting.given.set_exception(error)
                continue
            worker.groups += 1
            worker.trajectories += size
            answer.add_done_callback(partial(self._leave, worker, size))
            waiting.given.set_result((worker, answer))
        if not self._workers and not self._starting:
            self._refuse()

    def _leave(self, worker: Worker, size: int, _: Answer) -> None:
        worker.groups -= 1
        worker.trajectories -= size
        self._assign()

    def _refuse(self) -> None:
        """Fail all groups that wait, because there is no worker."""
        while self._waiting:
            if not (given := self._waiting.popleft().given).done():
                given.set_exception(self._no_worker())

    # Workers

    async def _first(self, number: int) -> None:
        """Start a worker, whose start may fail because of its machine."""
        for attempt in range(1, STARTS + 1):
            try:
                await self._take_in(number)
            except WorkerLost as error:
                if isinstance(error, NoPlace) or attempt == STARTS:
                    raise EngineError(f"worker {number} of {self._cluster.named} cannot be started: {error}") from None
            else:
                return

    async def _take_in(self, number: int) -> Worker:
        """Start a worker and attend to it."""
        actor, host, read = await self._start.start(number)
        worker = Worker(number, actor, host, asyncio.get_running_loop().create_future())
        self.read.update(read)
        self._workers.append(worker)
        self._workers.sort(key=lambda one: one.number)
        self._attending[number] = asyncio.create_task(self._attend(worker))
        self._assign()
        return worker

    async def _attend(self, worker: Worker) -> None:
        """Exchange heartbeats with a worker until it is lost. A call is always in flight, and fails when it ends."""
        while not worker.gone.done():
            asked = time.monotonic()
            try:
                beat = answer_to(worker.actor.heartbeat.remote(HEARTBEAT_S))
                self._say(await result(beat, gone=worker.gone, timeout_s=SILENCE_S))
            except EngineError as error:
                if time.monotonic() - asked < SILENCE_S + HEARTBEAT_S:  # else this process was stopped itself
                    self._lose(worker, str(error))

    def _lose(self, worker: Worker, reason: str) -> None:
        """End a worker, and start another one in its place. A second call does nothing."""
        if worker.gone.done():
            return
        worker.gone.set_result(reason)
        self._workers.remove(worker)
        self._cluster.kill(worker.actor)
        self._starting[worker.number] = asyncio.get_running_loop().create_task(self._replace(worker.number))
        self._report.say(f"sampler   {worker.named} is lost and will be replaced: {reason}")

    async def _replace(self, number: int) -> None:
        """Start a worker in place of a lost one."""
        failed = 0
        while failed < STARTS:
            try:
                worker = await self._take_in(number)
            except NoPlace as error:  # a machine may come back
                self._reason = str(error)
                if not self._workers:
                    self._refuse()
            except (EngineError, UserError) as error:
                self._reason = str(error)
                failed += 1
            else:
                del self._starting[number]
                self._report.say(f"sampler   {worker.named} has been started")
                return
        del self._starting[number]
        self._assign()
        self._report.say(f"sampler   worker {number} cannot be replaced: {self._reason}")

    async def _require_workers(self) -> None:
        """Wait until there is a worker.

        Raises:
            EngineError: there is none within the time of a start.
        """
        deadline = time.monotonic() + self._config.start_timeout_s
        while not self._workers:
            left = deadline - time.monotonic()
            if not self._starting or left <= 0:
                raise self._no_worker()
            await asyncio.wait(self._starting.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _no_worker(self) -> EngineError:
        return EngineError(f"no worker of {self._cluster.named} can be started: {self._reason}")

    async def _asked(self, call: Callable[[Any], Any]) -> list[Any]:
        """Return the answers of workers, without those that are lost. Raises the error of a call that failed."""

        async def asked(worker: Worker) -> list[Any]:
            try:
                return [await result(answer_to(call(worker.actor)), gone=worker.gone)]
            except WorkerLost as error:
                self._lose(worker, str(error))
                return []

        return [one for answers in await asyncio.gather(*map(asked, self._workers)) for one in answers]

    def _say(self, lines: Sequence[str]) -> None:
        """Print lines of a worker, once: all of them say the same about the run."""
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self._report.say(line)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["WorkerPool"]
