"""The protocols of strategies, which distribute training over processes and devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.batching.sharding import Rank

Value = TypeVar("Value")


class Processes(Protocol):
    """Collective operations. All processes must call the same methods in the same order."""

    @property
    def rank(self) -> Rank:
        """Rank of this process and the number of processes."""
        ...

    def scatter(self, values: Sequence[Value] | None) -> Value:
        """Send a value to each process; only the main process provides them."""
        ...

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in the main process, ordered by rank, and an empty list in the others."""
        ...

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all processes."""
        ...

    def max(self, value: float) -> float:
        """Return the largest value of all processes."""
        ...

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Join the totals of `rlcore_trainer.batching.sequence_metrics.add_metrics` of all processes."""
        ...

    def union(self, rows: Rows) -> Rows:
        """Merge the rows of all processes, each of which has different ones."""
        ...

    def any(self, here: bool) -> bool:
        """Return whether the value is true in any process."""
        ...

    def from_main(self, make: Callable[[], Value]) -> Value:
        """Return the result of ``make`` in the main process; see `rlcore.session.processes.Processes.from_main`."""
        ...

    def agreed(self) -> AbstractContextManager[None]:
        """Raise an error of one process in all processes.

        An error other than `RlcoreError` becomes a `ProcessError` in the other processes. The block must not contain
        other collective operations.
        """
        ...


class Optimisation(Protocol):
    """The optimiser of a module, whose copies in all processes have equal weights."""

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a micro-batch's loss."""
        ...

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Sum the gradients of all processes, clip the gradient, update the weights and clear the gradient.

        Returns:
            The norm before clipping, and whether the weights were updated. They are not if the norm is not finite.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs, as tensors and numbers."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state` of the same model."""
        ...


class Strategy(Protocol):
    """Distributes a run over processes and devices."""

    @property
    def processes(self) -> Processes:
        """The processes of the run."""
        ...

    def device(self, wanted: str) -> torch.device:
        """Return the device of this process for ``model.device``.

        Raises:
            UserError: the device does not exist.
        """
        ...

    def optimise(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> Optimisation:
        """Create the optimiser of all trainable parameters of ``model``."""
        ...
