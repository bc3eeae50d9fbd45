"""The ``[strategy]`` tables. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import Table


class SingleProcessConfig(Table):
    """``[strategy]`` for ``single``."""

    processes: Literal[1] | None = None
    """Number of processes, always 1. Use ``strategy.id=ddp`` for more."""
    sequence_parallel: Literal[1] = 1
    """Number of processes that compute each micro-batch together, always 1. Use ``strategy.id=ddp`` for more."""


class DataParallelConfig(Table):
    """``[strategy]`` for ``ddp``: several processes, each with a full copy of the model and a share of the work."""

    processes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of processes. None uses those started by ``torchrun`` or ``accelerate launch``, or else one per GPU."""
    address: str | None = None
    """``HOST:PORT`` of a Ray cluster on whose machines the processes are started, or ``auto`` for that of
    ``RAY_ADDRESS`` or else of this machine. None starts them on this machine."""
    sequence_parallel: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of processes that compute each micro-batch together, each for a part of its tokens (Ulysses, Jacobs et al.
    2023). A micro-batch then has this many times ``trainer.max_tokens_per_batch`` tokens. Use it for sequences that
    are too long for one process. It must divide the number of processes and the heads of the model's attention."""


class FullyShardedConfig(DataParallelConfig):
    """``[strategy]`` for ``fsdp2``: several processes, each with a part of the model and a share of the work."""

    shard_size: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Number of processes that divide the model between them. Each group of so many processes then has a copy, and
    weights are exchanged within a group alone (hybrid sharding, HSDP). It must divide the number of processes. None
    divides the model between all of them."""
    reshard_after_forward: bool = True
    """Whether a process frees the gathered weights of a layer after its forward pass, and gathers them again for the
    backward pass (ZeRO-3). ``false`` keeps them (ZeRO-2): a third less communication, but all weights in each process
    during an update."""
