"""One process, one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from rlcore.contracts import Executor
from rlcore.errors import UserError
from torch import Tensor, nn

from rlcore_trainer.config import DataParallelConfig, SingleProcessConfig
from rlcore_trainer.dealing import ALONE, Place
from rlcore_trainer.objective import Rows

Value = TypeVar("Value")


class SingleProcess:
    """Owns device and optimiser; the trainer says what to minimise.

    Weights in half precision get a float32 copy that the optimiser works on: an update of a millionth would otherwise
    vanish in the rounding of the weight.
    """

    place: Place = ALONE
    """Which share of the work this process does."""

    def __init__(self, config: SingleProcessConfig | DataParallelConfig) -> None:
        self.config = config

    def device(self, wanted: str) -> torch.device:
        """The device for ``model.device``.

        Raises:
            UserError: a GPU was asked for and there is none.
        """
        if wanted == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if wanted.startswith("cuda") and not torch.cuda.is_available():
            raise UserError(
                "model.device asks for a GPU", found="no CUDA device", where=wanted, mend="set model.device=auto"
            )
        return torch.device(wanted)

    def prepare(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> None:
        """Make the optimiser of all trainable parameters of ``model``."""
        self._live = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._masters = [p if p.dtype in (torch.float32, torch.float64) else p.detach().float() for p in self._live]
        groups = [
            {"params": [p for p in self._masters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in self._masters if p.ndim < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self._optimiser = torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=True)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a micro-batch's loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Clip the gradient, update, and forget the gradient.

        Returns:
            The norm before clipping, and whether the weights were updated: they are not when it is not finite.
        """
        norm = float(nn.utils.clip_grad_norm_(self._live, max_gradient_norm))
        updated = math.isfinite(norm)
        if updated:
            for group in self._optimiser.param_groups:
                group["lr"] = learning_rate
            for live, master in self._split():
                master.grad = None if live.grad is None else live.grad.float()
            self._optimiser.step()
            for live, master in self._split():
                live.data.copy_(master)
                master.grad = None
        for live in self._live:
            live.grad = None
        return norm, updated

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes; of a name that ends in ``/max``, the largest."""
        return dict(values)

    def union(self, rows: Rows) -> Rows:
        """The rows of all processes, each of which has those of its share."""
        return rows

    def any(self, here: bool) -> bool:
        """Whether it holds in any process. All of them have to ask."""
        return here

    def from_main(self, make: Callable[[], Value]) -> Value:
        """What ``make`` gives in the main process; see `rlcore.processes.Processes.from_main`."""
        return make()

    def agreed(self) -> AbstractContextManager[None]:
        """A block that no process leaves alone: an error in one of them is raised in all.

        What is no `RlcoreError` where it happened is a `ProcessError` in the others. Nothing else that all processes
        have to do together may stand in the block.
        """
        return nullcontext()

    def executor(self, executor: Executor) -> Executor:
        """One that collects with the executors of all processes."""
        return executor

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs: the optimiser's averages, and the float32 copies where there are any."""
        masters = [master.detach() for _, master in self._split()]
        return {"optimiser": self._optimiser.state_dict(), "masters": masters}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state` of the same model."""
        self._optimiser.load_state_dict(state["optimiser"])
        with torch.no_grad():
            for (_, master), saved in zip(self._split(), state["masters"], strict=True):
                master.copy_(saved)

    def _split(self) -> Iterable[tuple[Tensor, Tensor]]:
        return ((live, master) for live, master in zip(self._live, self._masters, strict=True) if live is not master)
