"""The protocols of strategies, which distribute training over processes and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlcore_trainer.distributed.collectives import Processes


class Optimisation(Protocol):
    """The optimiser of a module, of which each process has an equal copy or a part."""

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

    @property
    def shards(self) -> bool:
        """Whether `shard` divides parameters, so that all processes must take part in what reads them."""
        ...

    def shard(self, root: nn.Module) -> None:
        """Divide the parameters of a module between the processes, before its first optimiser.

        They may then be used in its forward pass alone, see `rlcore_trainer.policy.root`.
        """
        ...

    def optimise(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> Optimisation:
        """Create the optimiser of all trainable parameters of ``model``."""
        ...
