"""A `rlcore_trainer.distributed.strategy.Strategy` with one process and one device."""

from __future__ import annotations

import torch
from rlcore_models.device import device_name
from torch import nn

from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.collectives import OneProcess, Processes
from rlcore_trainer.distributed.config import DataParallelConfig, SingleProcessConfig


class SingleProcess:
    """One process and one device."""

    processes: Processes = OneProcess()
    shards = False

    def __init__(self, config: SingleProcessConfig | DataParallelConfig) -> None:
        self.config = config

    def device(self, wanted: str) -> torch.device:
        """Return the device for ``model.device``.

        Raises:
            UserError: a GPU is requested but is not available.
        """
        return torch.device(device_name(wanted, gpus=torch.cuda.device_count()))

    def shard(self, root: nn.Module) -> None:
        """Leave the module whole."""

    def optimise(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> AdamW:
        """Create the optimiser of all trainable parameters of ``model``."""
        return AdamW(model, betas=betas, weight_decay=weight_decay)
