"""The start of a worker: a place in the cluster, the versions of its machine, the files of the model, the weights."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.runs.ray_cluster import about_this_machine, require_same_versions

from rlcore_rollout.sampler.ray.calls import WorkerLost, answer_to, result
from rlcore_rollout.sampler.ray.cluster import SamplerCluster
from rlcore_rollout.sampler.ray.files import listing, parts
from rlcore_rollout.sampler.ray.worker import SamplerWorker

if TYPE_CHECKING:
    from rlcore.session.plan import RunPlan

    from rlcore_rollout.sampler.ray.config import RaySamplerConfig
    from rlcore_rollout.sampler.ray.weights import PackedWeights


class NoPlace(WorkerLost):
    """A worker for which no machine has had free resources."""


class WorkerStart:
    """Starts workers.

    Args:
        cluster: where
        config: the options of the sampler
        plan: the plan of the run
        folder: the model folder; None if the engine has its own model
        newest: returns the weights of now
        say: shows messages of a worker
    """

    def __init__(
        self,
        cluster: SamplerCluster,
        config: RaySamplerConfig,
        plan: RunPlan,
        folder: Path | None,
        newest: Callable[[], PackedWeights],
        say: Callable[[list[str]], None],
    ) -> None:
        self._cluster, self._config, self._plan, self._folder = cluster, config, plan, folder
        self._newest, self._say = newest, say
        self._here, self._files = about_this_machine(), listing(folder) if folder is not None else {}

    async def start(self, number: int) -> tuple[Any, str, set[bool]]:
        """Start a worker with the newest weights.

        Returns:
            Its actor, the name of its machine, and the values of ``adapter_only`` with which its engine reads weights.

        Raises:
            NoPlace: no machine has had room for it.
            EngineError: it cannot be started.
            UserError: its machine has other versions, or the run cannot start there.
        """
        actor = self._new_actor()
        try:
            return actor, *await self._started(actor, number, time.monotonic() + self._config.start_timeout_s)
        except BaseException:
            self._cluster.kill(actor)
            raise

    async def _started(self, actor: Any, number: int, deadline: float) -> tuple[str, set[bool]]:
        async def answer(reference: Any) -> Any:
            return await result(answer_to(reference), timeout_s=max(1.0, deadline - time.monotonic()))

        try:
            about: Mapping[str, Any] = await answer(actor.about.remote())
        except WorkerLost as error:
            if time.monotonic() < deadline:
                raise
            wanted = f"CPU {self._config.cpus:g} and GPU {self._cluster.gpus:g}"
            free = await asyncio.to_thread(self._cluster.said_free)
            raise NoPlace(f"no machine has {wanted} free for it: {free}") from error
        host = str(about["host"])
        try:
            if (differing := require_same_versions(self._here, about)) is not None:
                self._say([differing])
            if self._folder is not None and not await answer(actor.has_folder.remote(self._folder, self._files)):
                sent = iter(parts(self._folder))
                while (part := await asyncio.to_thread(next, sent, None)) is not None:
                    name, content = part
                    await answer(await asyncio.to_thread(actor.write.remote, name, content))
            packed = self._newest()
            read = set(await answer(actor.start.remote(self._plan, self._folder, packed, self._config.workers)))
            self._say(await answer(actor.heartbeat.remote(0)))
            while packed is not self._newest():
                packed = self._newest()
                read.update(await answer(actor.load.remote(packed)))
        except UserError as error:
            error.where = f"{error.where}, on {host}" if error.where else f"worker {number} on {host}"
            raise
        return host, read

    def _new_actor(self) -> Any:
        options = {"num_cpus": self._config.cpus, "num_gpus": self._cluster.gpus, "scheduling_strategy": "SPREAD"}
        return self._cluster.ray.remote(SamplerWorker).options(max_restarts=0, **options).remote(os.getcwd())


__all__ = ["NoPlace", "WorkerStart"]
