"""The workers of a run in a Ray cluster: their start, their heartbeats, and their replacement.

Ray notices a process that ended. It notices neither a process that is stopped, nor within a minute a machine that is
cut off, so each worker must answer a heartbeat in time.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.console.wording import counted
from rlcore.errors import EngineError, RlcoreError, UserError
from rlcore.event_loop import wait_until_done
from rlcore.runs.surroundings import changed_versions, surroundings

from rlcore_rollout.sampler.ray.cluster import Cluster
from rlcore_rollout.sampler.ray.files import listing, parts
from rlcore_rollout.sampler.ray.worker import SamplerWorker

if TYPE_CHECKING:
    from rlcore.runs.progress import Report
    from rlcore.session.plan import RunPlan

    from rlcore_rollout.sampler.ray.config import RaySamplerConfig
    from rlcore_rollout.sampler.ray.weights import PackedWeights

HEARTBEAT_S, SILENCE_S = 2.0, 10.0
"""Time between heartbeats, and the time without an answer after which a worker is replaced."""
LOOK_S = 0.5
"""Longest time without a look at heartbeats."""
STARTS = 3
"""Starts in succession that may fail in place of a lost worker."""
CLOSE_S = 15.0
"""Time for a worker to close its engine and environments."""
FETCH_S = 60.0
"""Time to fetch a result that is ready on another machine."""


class WorkerLost(EngineError):
    """A worker that ended, or does not answer."""


class NoPlace(WorkerLost):
    """A worker for which no machine has had free resources."""


@dataclass(eq=False)
class Worker:
    """A running worker.

    Attributes:
        number: its number, which its replacement has, too
        actor: the Ray actor
        host: the machine
        version: the version of its weights
        lost: why it is lost; empty while it is not
    """

    number: int
    actor: Any
    host: str
    version: int
    lost: str = ""
    beat: Any = None
    """The heartbeat that it has to answer."""
    beat_at: float = 0.0

    @property
    def named(self) -> str:
        """The worker, for messages."""
        return f"worker {self.number} on {self.host}"


class WorkerPool:
    """Starts workers, and replaces those that are lost by new ones with the newest weights.

    Args:
        config: the options of the sampler
        plan: the plan of the run
        folder: the model folder; None if the engine has its own model
        packed: packs the first weights, given a function that stores an array
        report: shows messages

    Raises:
        UserError: there is no such cluster, or a worker cannot be started.
    """

    def __init__(
        self,
        config: RaySamplerConfig,
        plan: RunPlan,
        folder: Path | None,
        packed: Callable[[Callable[[Any], Any]], PackedWeights],
        report: Report,
    ) -> None:
        self._config, self._plan, self._folder, self._report = config, plan, folder, report
        self._cluster = Cluster(config)
        self.ray = self._cluster.ray
        self.workers: list[Worker] = []
        self.read = set[bool]()
        """With which ``adapter_only`` the engines read weights."""
        self._here, self._files = surroundings([]), listing(folder) if folder is not None else {}
        self._starting: dict[int, Future[Worker]] = {}
        self._actors: set[Any] = set()
        self._failed: Counter[int] = Counter()
        self._reason = ""
        self._said: set[str] = set()
        self._closed = False
        self._threads = ThreadPoolExecutor(config.workers, thread_name_prefix="rlcore-ray")
        try:
            self._packed = packed(self.ray.put)
            for number in range(config.workers):
                self._launch(number)
            self.workers = [self._first(number) for number in range(config.workers)]
            self._failed.clear()
        except BaseException:
            self.close()
            raise
        hosts = Counter(worker.host for worker in self.workers)
        places = ", ".join(f"{host} ({count})" for host, count in sorted(hosts.items()))
        report.say(f"sampler   {counted(config.workers, 'worker')} of {self._cluster.named}: {places}")

    def load(self, packed: PackedWeights) -> None:
        """Load weights in all workers, with no call in flight."""
        self._packed = packed
        self._load(self.workers)
        self.attend()
        self.require_workers()

    def ask(self, call: Callable[[Any], Any]) -> list[Any]:
        """Return the answers of all workers to a call of their actors, without those that are lost: at least one."""
        answers = list[Any]()
        while not answers:
            self.attend()
            self.require_workers()
            answers = list(self._asked(self.workers, call).values())
        return answers

    def attend(self) -> None:
        """Exchange heartbeats, replace workers that are silent, and take in those that were started."""
        now = time.monotonic()
        beats = [worker.beat for worker in self.workers if worker.beat is not None]
        answered = set(self.ray.wait(beats, num_returns=len(beats), timeout=0)[0]) if beats else set()
        for worker in list(self.workers):
            if worker.beat in answered:
                try:
                    self._say(self.get(worker.beat))
                except EngineError as error:
                    self.lose(worker, str(error))
                    continue
                worker.beat = None
            elif worker.beat is not None and now - worker.beat_at > SILENCE_S:
                self.lose(worker, f"no heartbeat for {SILENCE_S:g} s")
                continue
            if worker.beat is None and now - worker.beat_at > HEARTBEAT_S:
                worker.beat, worker.beat_at = worker.actor.heartbeat.remote(), now
        self._take_in()

    def _say(self, lines: Sequence[str]) -> None:
        """Print lines of a worker, once: all of them say the same about the run."""
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self._report.say(line)

    def wait(self, references: Sequence[Any]) -> list[Any]:
        """Return those that are ready, after a while also if none is."""
        if not references:
            time.sleep(LOOK_S)
            return []
        self.ray.wait(references, num_returns=1, timeout=LOOK_S)
        ready, _ = self.ray.wait(references, num_returns=len(references), timeout=0)
        return list(ready)

    def get(self, reference: Any, *, timeout_s: float = FETCH_S) -> Any:
        """Return the result of a call.

        Raises:
            WorkerLost: the worker or its machine is gone, or does not answer in time.
            EngineError: the call failed.
            UserError: the call raised it.
        """
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        try:
            return self.ray.get(reference, timeout=timeout_s)
        except RayTaskError as error:
            cause = getattr(error.cause, "client_exc", error.cause)  # of an argument that cannot be unpickled
            if isinstance(cause, RlcoreError):
                raise cause from None
            raise EngineError(f"{type(cause).__name__}: {cause}") from error
        except GetTimeoutError:
            raise WorkerLost(f"no answer within {timeout_s:g} s") from None
        except RayError as error:
            raise WorkerLost(str(error).strip().split("\n")[0]) from None

    def lose(self, worker: Worker, reason: str) -> None:
        """End a worker, and start another one in its place. A second call does nothing."""
        if worker.lost:
            return
        worker.lost = reason
        self.workers.remove(worker)
        self._report.say(f"sampler   {worker.named} is lost and will be replaced: {reason}")
        self._kill(worker.actor)
        self._launch(worker.number)

    def close(self) -> None:
        """Close and end all workers, and disconnect. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        closing = [worker.actor.close.remote() for worker in self.workers]
        if closing:
            self.ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for actor in list(self._actors):
            self._kill(actor)
        self._threads.shutdown(cancel_futures=True)
        self._cluster.close()

    # Starting

    def _first(self, number: int) -> Worker:
        """Wait for a worker, whose start may fail because of its machine."""
        while True:
            wait_until_done(self._starting[number])
            try:
                return self._starting.pop(number).result()
            except WorkerLost as error:
                self._failed[number] += 1
                if isinstance(error, NoPlace) or self._failed[number] == STARTS:
                    raise EngineError(f"worker {number} of {self._cluster.named} cannot be started: {error}") from None
                self._launch(number)

    def _launch(self, number: int) -> None:
        if not self._closed:
            self._starting[number] = self._threads.submit(self._start, number)

    def _start(self, number: int) -> Worker:
        """Start a worker with the weights of now, in a thread."""
        actor = self._new_actor()
        deadline = time.monotonic() + self._config.start_timeout_s
        try:
            about = self._placed(actor, deadline)
            host = str(about["host"])
            try:
                self._check_versions(about, host)
                has = self._folder is None or self._answer(actor.has_folder.remote(self._folder, self._files), deadline)
                if not has:
                    assert self._folder is not None
                    for name, part in parts(self._folder):
                        self._answer(actor.write.remote(name, part), deadline)
                packed = self._packed
                started = actor.start.remote(self._plan, self._folder, packed, self._config.workers)
                self.read.update(self._answer(started, deadline))
                self._say(self._answer(actor.heartbeat.remote(), deadline))
            except UserError as error:
                error.where = f"{error.where}, on {host}" if error.where else f"worker {number} on {host}"
                raise
            return Worker(number, actor, host, packed.version)
        except BaseException:
            self._kill(actor)
            raise

    def _new_actor(self) -> Any:
        options = {"num_cpus": self._config.cpus, "num_gpus": self._cluster.gpus, "scheduling_strategy": "SPREAD"}
        actor = self.ray.remote(SamplerWorker).options(max_restarts=0, **options).remote(os.getcwd())
        self._actors.add(actor)
        return actor

    def _placed(self, actor: Any, deadline: float) -> Mapping[str, Any]:
        """Return what a worker says about its machine, once it has a place."""
        try:
            found: Mapping[str, Any] = self._answer(actor.about.remote(), deadline)
        except WorkerLost as error:
            if time.monotonic() < deadline:
                raise
            wanted = f"CPU {self._config.cpus:g} and GPU {self._cluster.gpus:g}"
            raise NoPlace(f"no machine has {wanted} free for it: {self._cluster.free()}") from error
        return found

    def _answer(self, reference: Any, deadline: float) -> Any:
        return self.get(reference, timeout_s=max(1.0, deadline - time.monotonic()))

    def _check_versions(self, about: Mapping[str, Any], host: str) -> None:
        """Compare the versions of a machine with those here.

        Raises:
            UserError: those of Python, rlcore or a plugin differ. Others are reported.
        """
        then = {name: self._here[name] for name in ("python", "versions", "plugins")}
        changes = changed_versions(then, about)
        ours = ("Python ", "rlcore", *(f"{name} " for name in {*self._here["plugins"], *about["plugins"]}))
        if fatal := [change for change in changes if change.startswith(ours)]:
            raise UserError(
                "the machines of a run need the same versions of Python, rlcore and its plugins",
                found=f"{'; '.join(fatal)} (here → there)",
                where=host,
                fix="install the same versions there, in the environment of its ray start",
            )
        if changes:
            self._say([f"note      other versions on {host} may change results: {'; '.join(changes)}"])

    def _take_in(self) -> None:
        """Take in the workers that have been started in place of others, after they have the newest weights."""
        for number in [number for number, future in self._starting.items() if future.done()]:
            if (future := self._starting.pop(number, None)) is None:
                continue  # loading the weights of another one has taken it in
            try:
                worker = future.result()
            except NoPlace as error:  # a machine may come back
                self._reason = str(error)
                self._launch(number)
                continue
            except RlcoreError as error:
                self._reason = str(error)
                self._failed[number] += 1
                if self._failed[number] < STARTS:
                    self._launch(number)
                else:
                    self._report.say(f"sampler   worker {number} cannot be replaced: {error}")
                continue
            self._failed[number] = 0
            self.workers.append(worker)
            self.workers.sort(key=lambda one: one.number)
            if worker.version != self._packed.version:
                self._load([worker])
            if not worker.lost:
                self._report.say(f"sampler   {worker.named} has been started")

    def require_workers(self) -> None:
        """Wait until there is a worker.

        Raises:
            EngineError: there is none within the time of a start.
        """
        deadline = time.monotonic() + self._config.start_timeout_s
        while not self.workers:
            if not self._starting or time.monotonic() > deadline:
                raise EngineError(f"no worker of {self._cluster.named} can be started: {self._reason}")
            time.sleep(LOOK_S)
            self.attend()

    def _load(self, workers: Sequence[Worker]) -> None:
        packed = self._packed
        for worker, read in self._asked(workers, lambda actor: actor.load.remote(packed)).items():
            worker.version = packed.version
            self.read.update(read)

    def _asked(self, workers: Sequence[Worker], call: Callable[[Any], Any]) -> dict[Worker, Any]:
        """Return the answers of workers by worker, without those that are lost."""
        asked, answers = {call(worker.actor): worker for worker in workers}, dict[Worker, Any]()
        while asked := {reference: worker for reference, worker in asked.items() if not worker.lost}:
            for reference in self.wait(list(asked)):
                worker = asked.pop(reference)
                try:
                    answers[worker] = self.get(reference)
                except EngineError as error:
                    self.lose(worker, str(error))
            if asked:
                self.attend()
        return answers

    def _kill(self, actor: Any) -> None:
        self._actors.discard(actor)
        with suppress(Exception):  # an actor that has ended, or a cluster that is gone
            self.ray.kill(actor)


__all__ = ["Worker", "WorkerLost", "WorkerPool"]
