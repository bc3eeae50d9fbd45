"""Several processes: each has the whole model, rolls out its share of the tasks and computes its share of the gradient.

Losses are divided by what the whole batch holds, so gradients are summed, never averaged: with any number of processes
an update is that of a single one, but for the rounding of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

import torch
from rlcore.contracts import ChatFormat, Executor, WeightSource
from rlcore.errors import UserError
from rlcore.records import trajectory_from_json, trajectory_to_json
from rlcore.types import Completion, Group, RolloutRequest, Sampling
from torch import Tensor

from rlcore_trainer.config import DataParallelConfig
from rlcore_trainer.dealing import joined, share
from rlcore_trainer.objective import Rows
from rlcore_trainer.processes import JoinedProcesses
from rlcore_trainer.strategies.single import SingleProcess

Value = TypeVar("Value")

BUCKET = 2**25
"""Numbers of the gradient that are summed at once."""


class DataParallel(SingleProcess):
    """`SingleProcess`, many times over: all processes call the same methods in the same order."""

    def __init__(self, config: DataParallelConfig) -> None:
        super().__init__(config)
        self._processes = JoinedProcesses(cpu=not torch.cuda.is_available())
        self.place = self._processes.place

    def device(self, wanted: str) -> torch.device:
        """The process's own GPU, or the CPU; see `SingleProcess.device`."""
        device = super().device(wanted)
        if device.type == "cpu" or self.place.count == 1:
            return device
        if device.index is not None:
            raise UserError("each process takes a GPU of its own", found=wanted, where="model.device", mend="auto")
        return self._processes.device

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Sum the gradients of all processes, then as `SingleProcess.step`: all of them do the same."""
        self._sum_gradients()
        return super().step(learning_rate, max_gradient_norm)

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes; of a name that ends in ``/max``, the largest."""
        total: dict[str, float] = {}
        for found in self._processes.exchange(dict(values)):
            for name, value in found.items():
                known = total.get(name)
                both = value if known is None else max(known, value) if name.endswith("/max") else known + value
                total[name] = both
        return total

    def union(self, rows: Rows) -> Rows:
        """The rows of all processes, each of which has those of its share; on this one's device."""
        here: dict[int, Tensor] = {}
        device = next((row.device for row in rows.values()), self._device)
        for found in self._processes.exchange({i: row.detach().cpu() for i, row in rows.items()}):
            here |= {i: row.to(device) for i, row in found.items()}
        return {i: here[i] for i in sorted(here)}

    def any(self, here: bool) -> bool:
        """Whether it holds in any process. All of them have to ask."""
        return self._processes.any(here)

    def from_main(self, make: Callable[[], Value]) -> Value:
        """What ``make`` gives in the main process, in all of them."""
        return self._processes.from_main(make)

    def agreed(self) -> AbstractContextManager[None]:
        """A block of which an error in one process is raised in all."""
        return self._processes.agreed()

    def executor(self, executor: Executor) -> Executor:
        """One that collects with the executors of all processes."""
        return SharedExecutor(executor, self._processes)

    @property
    def _device(self) -> torch.device:
        return self._live[0].device

    @torch.no_grad()
    def _sum_gradients(self) -> None:
        """Parameters that got a gradient in no process have none afterwards, as in a single process."""
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
    """An executor in each process: of a request each does its share, and all get all groups, in order.

    Randomness is keyed by task and sibling, so what is sampled does not depend on who samples it.
    """

    def __init__(self, executor: Executor, processes: JoinedProcesses) -> None:
        self._executor, self._processes = executor, processes

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use."""
        return self._executor.chat_format

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks. What fails in one process fails in all."""
        mine = share(request.tasks, self._processes.place)
        groups: Sequence[Group] = ()
        with self._processes.agreed():
            if mine:
                groups = self._executor.collect(replace(request, tasks=mine))
        plain = [[trajectory_to_json(one) for one in group.trajectories] for group in groups]
        everybody = joined(self._processes.exchange(plain))
        return [
            Group(task=task, trajectories=tuple(trajectory_from_json(one) for one in trajectories))
            for task, trajectories in zip(request.tasks, everybody, strict=True)
        ]

    def sync_weights(self, source: WeightSource) -> None:
        """Give this process's engine the policy's present weights."""
        self._executor.sync_weights(source)

    def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """One completion straight from this process's engine."""
        return self._executor.generate(prompt_ids, sampling)

    def close(self) -> None:
        """End this process's engine and workers."""
        self._executor.close()


def _buckets(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Parameters in their order, as many of one type together as `BUCKET` allows."""
    bucket: list[Tensor] = []
    for parameter in parameters:
        full = sum(one.numel() for one in bucket) + parameter.numel() > BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
