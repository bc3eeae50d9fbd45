"""The ``[strategy]`` tables. Does not import torch."""

from __future__ import annotations

from typing import Literal

from rlcore.config.schema import Table

from rlcore_trainer.config import Positive


class SingleProcessConfig(Table):
    """``[strategy]`` for ``single``."""

    processes: Literal[1] | None = None
    """Number of processes, always 1. Use ``strategy.id=ddp`` for more."""


class DataParallelConfig(Table):
    """``[strategy]`` for ``ddp``: several processes, each with a full copy of the model and a share of the work."""

    processes: Positive | None = None
    """Number of processes. None uses those started by ``torchrun`` or ``accelerate launch``, or else one per GPU."""
