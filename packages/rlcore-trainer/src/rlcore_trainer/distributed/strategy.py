"""The protocol of strategies that distribute a training step over processes and devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from rlcore.contracts import Executor
from torch import Tensor, nn

from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.batching.sharding import Rank

Value = TypeVar("Value")


class Strategy(Protocol):
    """Owns the device and the optimiser; the trainer provides the loss.

    With several processes, all processes must call the same methods in the same order.
    """

    rank: Rank
    """Rank of this process, which determines its share of the work."""

    def device(self, wanted: str) -> torch.device:
        """Return the device for ``model.device``.

        Raises:
            UserError: the device does not exist.
        """
        ...

    def prepare(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> None:
        """Create the optimiser for all trainable parameters of ``model``. A second call resets it."""
        ...

    def another(self) -> Strategy:
        """Return a strategy of the same kind, for parameters with a separate optimiser."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a micro-batch's loss."""
        ...

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Clip the gradient, update the weights and clear the gradient.

        Returns:
            The norm before clipping, and whether the weights were updated. They are not if the norm is not finite.
        """
        ...

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all processes, or the maximum for names that end in ``/max``."""
        ...

    def union(self, rows: Rows) -> Rows:
        """Merge the rows of all processes, each of which has the rows of its share."""
        ...

    def any(self, here: bool) -> bool:
        """Return whether the value is true in any process. All processes must call this method."""
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

    def executor(self, executor: Executor) -> Executor:
        """Return an executor that collects with the executors of all processes."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs, as tensors and numbers."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state` of the same model."""
        ...
