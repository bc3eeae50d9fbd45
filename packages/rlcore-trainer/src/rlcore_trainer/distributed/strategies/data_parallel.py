"""Data-parallel training with several processes.

Each process holds the whole model, rolls out its share of the tasks and computes its share of the gradient. Losses are
normalised over the whole batch, so gradients are summed instead of averaged. Up to rounding, an update does not depend
on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from rlcore.errors import UserError
from rlcore.session.processes import world_size
from torch import Tensor, nn

from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.collectives import OneProcess
from rlcore_trainer.distributed.config import DataParallelConfig
from rlcore_trainer.distributed.processes import JoinedProcesses
from rlcore_trainer.distributed.strategies.single import SingleProcess

BUCKET = 2**25
"""Number of gradient elements summed in one operation."""


class DataParallel(SingleProcess):
    """Several processes, each with its own device."""

    def __init__(self, config: DataParallelConfig) -> None:
        super().__init__(config)
        cpu = not torch.cuda.is_available()
        self._joined = JoinedProcesses(cpu=cpu, team_size=config.sequence_parallel) if world_size() > 1 else None
        self.processes = self._joined or OneProcess()

    def device(self, wanted: str) -> torch.device:
        """Return the process's own GPU, or the CPU; see `SingleProcess.device`."""
        device = super().device(wanted)
        if device.type == "cpu" or self._joined is None:
            return device
        if device.index is not None:
            raise UserError(
                "each process needs its own GPU", found=wanted, where="model.device", fix="model.device=auto"
            )
        return self._joined.device

    def optimise(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> AdamW:
        """Create the optimiser of all trainable parameters of ``model``."""
        if self._joined is None:
            return super().optimise(model, betas=betas, weight_decay=weight_decay)
        return SummedGradients(model, self._joined, betas=betas, weight_decay=weight_decay)


class SummedGradients(AdamW):
    """`AdamW` that sums the gradients of all processes, and then updates the weights identically in each of them."""

    def __init__(
        self, model: nn.Module, processes: JoinedProcesses, *, betas: tuple[float, float], weight_decay: float
    ) -> None:
        super().__init__(model, betas=betas, weight_decay=weight_decay)
        self._processes = processes

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Sum the gradients of all processes, then apply `AdamW.step`."""
        self._sum_gradients()
        return super().step(learning_rate, max_gradient_norm)

    @torch.no_grad()
    def _sum_gradients(self) -> None:
        """Sum gradients over processes. As in one process, a parameter without any gradient keeps none."""
        there_P = torch.tensor([parameter.grad is not None for parameter in self._masters], dtype=torch.int32)
        self._processes.add(there_P)
        wanted = [parameter for parameter, count in zip(self._masters, there_P.tolist(), strict=True) if count]
        for bucket in _buckets(wanted):
            gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in bucket]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            self._processes.add(flat)
            for one, summed in zip(bucket, torch.split(flat, [one.numel() for one in bucket]), strict=True):
                one.grad = summed.view_as(one)


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
