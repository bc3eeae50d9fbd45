"""A process of a Ray cluster that samples: the other side of `rlcore_rollout.sampler.ray.pool`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.config.schema import RunConfig
from rlcore.errors import EngineError
from rlcore.runs.progress import Meter, silent
from rlcore.runs.ray_cluster import about_this_machine
from rlcore.types import Completion, Group, Prompt, RolloutKey, Sampling, Task

from rlcore_rollout.sampler.local import LocalSampler
from rlcore_rollout.sampler.ray.calls import WorkerLost
from rlcore_rollout.sampler.ray.files import Listing, SentFolder, listing, remove_abandoned

if TYPE_CHECKING:
    from rlcore.session.plan import RunPlan

    from rlcore_rollout.sampler.ray.weights import PackedWeights, ReceivedWeights


class CollectedLines(logging.Handler):
    """A `rlcore.runs.progress.Report` whose lines, with those of warnings, are read by the process of the run."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []

    def say(self, *lines: str) -> None:
        """Keep lines."""
        self._lines += lines

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        """Return a meter that shows nothing: the process of the run counts groups."""
        return Meter(phase, total, unit, silent)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self._lines.append(record.getMessage())

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        taken, self._lines = self._lines, []
        return taken


class SamplerWorker:
    """An actor with a `LocalSampler`. Errors of rlcore are raised as they are.

    The methods are coroutines, so that `heartbeat` is answered at any time; what blocks runs in threads.

    Args:
        folder: the working directory of the run, to which its paths are relative
    """

    def __init__(self, folder: str) -> None:
        if os.path.isdir(folder):
            os.chdir(folder)
        self._lines = CollectedLines()
        logging.getLogger().addHandler(self._lines)
        self._sampler: LocalSampler | None = None
        self._source: ReceivedWeights | None = None
        self._sent: SentFolder | None = None
        """The model folder, if this machine does not have it."""
        remove_abandoned()

    async def about(self) -> Mapping[str, Any]:
        """Return the name of the machine and its versions."""
        return await asyncio.to_thread(about_this_machine)

    async def has_folder(self, folder: Path, wanted: Listing) -> bool:
        """Return whether a folder has the same files on this machine."""
        return await asyncio.to_thread(listing, folder) == wanted

    async def write(self, name: str, part: bytes) -> None:
        """Append to a file of the model folder, which is sent before `start`."""
        if self._sent is None:
            self._sent = SentFolder()
        await asyncio.to_thread(self._sent.append, name, part)

    async def start(self, plan: RunPlan, folder: Path | None, packed: PackedWeights, samplers: int) -> list[bool]:
        """Create the sampler and its engine, and return with which ``adapter_only`` the weights were read.

        Args:
            plan: the plan of the run, which is resolved again here when it is unpickled
            folder: the model folder, unless its files were sent
            packed: the weights
            samplers: number of samplers of the run
        """
        return await asyncio.to_thread(self._start, plan, folder, packed, samplers)

    def _start(self, plan: RunPlan, folder: Path | None, packed: PackedWeights, samplers: int) -> list[bool]:
        from rlcore.session.components import RunComponents

        components = RunComponents(plan)
        here = self._sent.path if self._sent is not None else folder
        self._source = self._received(packed, here, components.config)
        self._sampler = LocalSampler(components, self._source, self._lines, samplers=samplers)
        return self._load(packed) if packed.streamed else []

    def _received(self, packed: PackedWeights, folder: Path | None, config: RunConfig) -> ReceivedWeights:
        import ray
        import torch
        from rlcore_models.device import device_name

        from rlcore_rollout.sampler.ray.weights import ReceivedWeights

        device = torch.device(device_name(config.model.device, gpus=torch.cuda.device_count()))
        return ReceivedWeights(packed=packed, folder=folder, device=device, get=ray.get)

    async def load(self, packed: PackedWeights) -> list[bool]:
        """Load weights, also while groups are sampled; returns as `start`.

        Raises:
            WorkerLost: the engine has failed.
            EngineError: the engine refuses them.
        """
        with self._engine():
            return await asyncio.to_thread(self._load, packed)

    def _load(self, packed: PackedWeights) -> list[bool]:
        assert self._sampler is not None
        assert self._source is not None
        self._source.packed = packed
        self._sampler.update_weights(self._source)
        return sorted(self._source.read)

    async def sample(self, task: Task, key: RolloutKey, place: int) -> Group:
        """Return the scored group of a task; see `LocalSampler.submit`.

        Raises:
            EngineError: the engine died.
            UserError: an endpoint or a reward can answer no further call.
        """
        assert self._sampler is not None
        return await asyncio.wrap_future(self._sampler.submit(task, key, place=place))

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """Return a completion of the engine. Raises as `load`."""
        assert self._sampler is not None
        with self._engine():
            (completion,) = await asyncio.to_thread(self._sampler.completions, prompt, sampling)
        return completion

    @contextmanager
    def _engine(self) -> Iterator[None]:
        """Raise `WorkerLost` instead of an error of an engine that cannot go on."""
        assert self._sampler is not None
        try:
            yield
        except EngineError as error:
            try:
                self._sampler.require_services(())
            except EngineError as failure:
                raise WorkerLost(str(failure)) from error
            raise

    async def heartbeat(self, after_s: float) -> list[str]:
        """Return lines to print after a while, so that a call is in flight at any time, which fails when this ends."""
        await asyncio.sleep(after_s)
        return self._lines.take()

    async def close(self) -> None:
        """Close the sampler, and remove a model folder that was sent."""
        if self._sampler is not None:
            await asyncio.to_thread(self._sampler.close)
        if self._sent is not None:
            self._sent.remove()


__all__ = ["SamplerWorker"]
