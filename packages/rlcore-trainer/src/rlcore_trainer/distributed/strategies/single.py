"""A `rlcore_trainer.distributed.strategy.Strategy` with one process and one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar

import torch
from rlcore.contracts import Executor
from rlcore.errors import UserError
from rlcore.models.device import device_name
from rlcore.models.freed_memory import return_freed_memory
from torch import Tensor, nn

from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.batching.sharding import SINGLE_RANK, Rank
from rlcore_trainer.distributed.config import DataParallelConfig, SingleProcessConfig

Value = TypeVar("Value")


KEPT_BYTES = 2**29
"""Freed memory that stays on the heap. Without a limit, its gaps grow with the updates of a large model: the memory of
SmolLM2 grew from 5.5 to 9 GiB in 60 of them."""


class SingleProcess:
    """Owns the device and the optimiser; the trainer provides the loss.

    Half-precision weights get a float32 copy for the optimiser, because small updates would otherwise be lost to
    rounding.
    """

    rank: Rank = SINGLE_RANK
    """Rank of this process, which determines its share of the work."""

    def __init__(self, config: SingleProcessConfig | DataParallelConfig) -> None:
        self.config = config
        self._live: list[Tensor] = []
        self._masters: list[Tensor] = []
        self._optimiser: torch.optim.Optimizer | None = None

    def device(self, wanted: str) -> torch.device:
        """Return the device for ``model.device``.

        Raises:
            UserError: a GPU is requested but is not available.
        """
        return torch.device(device_name(wanted, gpus=torch.cuda.device_count()))

    def prepare(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> None:
        """Create the optimiser for all trainable parameters of ``model``."""
        self._live = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._masters = [p if p.dtype in (torch.float32, torch.float64) else p.detach().float() for p in self._live]
        groups = [
            {"params": [p for p in self._masters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in self._masters if p.ndim < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self._optimiser = torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=True)

    def another(self) -> Self:
        """Return a strategy of the same kind, for parameters with a separate optimiser."""
        return type(self)(self.config)

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a micro-batch's loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Clip the gradient, update the weights and clear the gradient.

        Returns:
            The norm before clipping, and whether the weights were updated. They are not if the norm is not finite.
        """
        optimiser = self._prepared()
        norm = float(nn.utils.clip_grad_norm_(self._live, max_gradient_norm))
        updated = math.isfinite(norm)
        if updated:
            for group in optimiser.param_groups:
                group["lr"] = learning_rate
            for live, master in self._split():
                master.grad = None if live.grad is None else live.grad.float()
                live.grad = None  # one copy of the gradient at a time
            optimiser.step()
            for live, master in self._split():
                live.data.copy_(master)
                master.grad = None
        for live in self._live:
            live.grad = None
        return_freed_memory(above=KEPT_BYTES)
        return norm, updated

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all processes, or the maximum for names that end in ``/max``."""
        return dict(values)

    def union(self, rows: Rows) -> Rows:
        """Merge the rows of all processes, each of which has the rows of its share."""
        return rows

    def any(self, here: bool) -> bool:
        """Return whether the value is true in any process. All processes must call this method."""
        return here

    def from_main(self, make: Callable[[], Value]) -> Value:
        """Return the result of ``make`` in the main process; see `rlcore.session.processes.Processes.from_main`."""
        return make()

    def agreed(self) -> AbstractContextManager[None]:
        """Raise an error of one process in all processes.

        An error other than `RlcoreError` becomes a `ProcessError` in the other processes. The block must not contain
        other collective operations.
        """
        return nullcontext()

    def executor(self, executor: Executor) -> Executor:
        """Return an executor that collects with the executors of all processes."""
        return executor

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs: the optimiser's moments, and the float32 copies if there are any."""
        masters = [master.detach() for _, master in self._split()]
        return {"optimiser": self._prepared().state_dict(), "masters": masters}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state` of the same model. The settings of the optimiser stay those of `prepare`.

        Raises:
            UserError: the state is of weights in another precision.
        """
        optimiser, masters = self._prepared(), list(self._split())
        if len(masters) != len(state["masters"]):
            raise UserError(
                "a resumed run cannot change the precision of its weights",
                found=f"{'reduced' if masters else 'float32'} precision; the checkpoint has the other",
                where="model.dtype",
                fix="set model.dtype to the precision that the run started with",
            )
        settings = [{key: group[key] for key in ("betas", "weight_decay")} for group in optimiser.param_groups]
        optimiser.load_state_dict(state["optimiser"])
        for group, own in zip(optimiser.param_groups, settings, strict=True):
            group.update(own)
        with torch.no_grad():
            for (_, master), saved in zip(masters, state["masters"], strict=True):
                master.copy_(saved)

    def _prepared(self) -> torch.optim.Optimizer:
        assert self._optimiser is not None, "call `prepare` first"
        return self._optimiser

    def _split(self) -> Iterable[tuple[Tensor, Tensor]]:
        return ((live, master) for live, master in zip(self._live, self._masters, strict=True) if live is not master)
