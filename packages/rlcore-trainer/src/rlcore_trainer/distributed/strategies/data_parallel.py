"""Data-parallel training with several processes.

Each process holds the whole model, rolls out its share of the tasks and computes its share of the gradient. Losses are
normalised over the whole batch, so gradients are summed instead of averaged. Up to rounding, an update does not depend
on the number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar, cast

import torch
from rlcore.contracts import ChatFormat, Executor, TokenExecutor, WeightSource
from rlcore.errors import UserError
from rlcore.types import Completion, Group, Prompt, RolloutRequest, Sampling
from torch import Tensor

from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.batching.sharding import joined, share
from rlcore_trainer.distributed.config import DataParallelConfig
from rlcore_trainer.distributed.processes import JoinedProcesses
from rlcore_trainer.distributed.strategies.single import SingleProcess

Value = TypeVar("Value")

BUCKET = 2**25
"""Number of gradient elements summed in one operation."""


class DataParallel(SingleProcess):
    """Data-parallel version of `SingleProcess`. All processes call the same methods in the same order."""

    def __init__(self, config: DataParallelConfig) -> None:
        super().__init__(config)
        self._processes = JoinedProcesses(cpu=not torch.cuda.is_available())
        self.rank = self._processes.rank

    def device(self, wanted: str) -> torch.device:
        """Return the process's own GPU, or the CPU; see `SingleProcess.device`."""
        device = super().device(wanted)
        if device.type == "cpu" or self.rank.world_size == 1:
            return device
        if device.index is not None:
            raise UserError(
                "each process needs its own GPU", found=wanted, where="model.device", fix="model.device=auto"
            )
        return self._processes.device

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Sum the gradients of all processes, then apply `SingleProcess.step` identically in each process."""
        self._sum_gradients()
        return super().step(learning_rate, max_gradient_norm)

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all processes, or the maximum for names that end in ``/max``."""
        total: dict[str, float] = {}
        for found in self._processes.exchange(dict(values)):
            for name, value in found.items():
                known = total.get(name)
                both = value if known is None else max(known, value) if name.endswith("/max") else known + value
                total[name] = both
        return total

    def union(self, rows: Rows) -> Rows:
        """Merge the rows of all processes, each of which has the rows of its share, on this process's device."""
        here: dict[int, Tensor] = {}
        device = next((row.device for row in rows.values()), self._device)
        for found in self._processes.exchange({i: row.detach().cpu() for i, row in rows.items()}):
            here |= {i: row.to(device) for i, row in found.items()}
        return {i: here[i] for i in sorted(here)}

    def any(self, here: bool) -> bool:
        """Return whether the value is true in any process. All processes must call this method."""
        return self._processes.any(here)

    def from_main(self, make: Callable[[], Value]) -> Value:
        """Call ``make`` in the main process, and return its result in all processes."""
        return self._processes.from_main(make)

    def agreed(self) -> AbstractContextManager[None]:
        """Return a context manager that raises an error of one process in all processes."""
        return self._processes.agreed()

    def executor(self, executor: Executor) -> Executor:
        """Return an executor that collects with the executors of all processes."""
        return SharedExecutor(executor, self._processes)

    @property
    def _device(self) -> torch.device:
        return self._live[0].device

    @torch.no_grad()
    def _sum_gradients(self) -> None:
        """Sum gradients over processes. As in one process, a parameter without any gradient keeps none."""
        there_P = torch.tensor([parameter.grad is not None for parameter in self._live], dtype=torch.int32)
        self._processes.add(there_P)
        wanted = [parameter for parameter, count in zip(self._live, there_P.tolist(), strict=True) if count]
        for bucket in _buckets(wanted):
            dtype = torch.promote_types(bucket[0].dtype, torch.float32)  # a sum in half precision would lose digits
            gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in bucket]
            flat = torch.cat([gradient.reshape(-1).to(dtype) for gradient in gradients])
            self._processes.add(flat)
            for one, summed in zip(bucket, torch.split(flat, [one.numel() for one in bucket]), strict=True):
                one.grad = summed.view_as(one).to(one.dtype)


class SharedExecutor:
    """An executor in each process. Each collects its share of a request, and all return all groups in order.

    Randomness is keyed by task and sibling, so samples do not depend on the process that draws them.
    """

    def __init__(self, executor: Executor, processes: JoinedProcesses) -> None:
        self._executor, self._processes = executor, processes

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer used by the rollouts of an executor that samples tokens."""
        return cast(TokenExecutor, self._executor).chat_format

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Return scored groups in the order of the request's tasks. An error in one process is raised in all."""
        mine = share(request.tasks, self._processes.rank)
        groups: Sequence[Group] = ()
        with self._processes.agreed():
            if mine:
                groups = self._executor.collect(replace(request, tasks=mine))
        everybody = joined(self._processes.exchange([group.trajectories for group in groups]))
        return [
            Group(task=task, trajectories=trajectories)
            for task, trajectories in zip(request.tasks, everybody, strict=True)
        ]

    def sync_weights(self, source: WeightSource) -> None:
        """Transfer the policy's current weights to this process's engine."""
        self._executor.sync_weights(source)

    def generate(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """Return one completion from the engine of this process's `TokenExecutor`."""
        return cast(TokenExecutor, self._executor).generate(prompt, sampling)

    def close(self) -> None:
        """Close this process's engine and workers."""
        self._executor.close()


def _buckets(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield parameters in order, in buckets of one dtype with at most `BUCKET` elements where possible."""
    bucket: list[Tensor] = []
    for parameter in parameters:
        full = sum(one.numel() for one in bucket) + parameter.numel() > BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
