"""The options of the sampler ``ray``, and the check of what it cannot do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rlcore.checks import Finding, failure
from rlcore.config.schema import Table
from rlcore.runs.ray_cluster import check_address

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


ADDRESS = "RAY_ADDRESS"


class RaySamplerConfig(Table):
    """Samples in other processes, also on other machines, each with an engine of its own."""

    address: str | None = None
    """``HOST:PORT`` of the cluster, ``auto`` for that of ``RAY_ADDRESS`` or else of this machine, or ``local`` to start
    one that ends with the run. By default, the environment variable ``RAY_ADDRESS``, and without it ``local``."""
    workers: Annotated[int, Field(ge=1, le=4096)] = 2
    """Number of processes that sample. ``rollout.concurrency`` applies to each."""
    cpus: Annotated[float, Field(gt=0)] = 1
    """CPU cores that each of them reserves, which is also its number of threads."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """GPUs that each of them reserves. By default, 1 if the cluster has GPUs, and otherwise 0."""
    start_timeout_s: Annotated[float, Field(gt=0)] = 600
    """Timeout in seconds for the start of all workers with their engines, including the wait for free resources."""


def check_ray(run: RunSession) -> Iterator[Finding]:
    """Find settings that a run cannot have with its sampler in other processes."""
    model, address = run.config.model, cluster_address(run.options("sampler"))
    if run.trains and model.quantization != "none":
        reason = "quantised weights cannot be sent to other processes"
        yield failure("model.quantization", reason, "model.quantization=none, or sampler.id=local")
    if address is not None:
        yield from check_address(address, "sampler.address")
    elif (training := training_address(run.options("strategy"))) is not None:
        reason = "a Ray of its own would use the GPUs of the processes that train"
        yield failure("sampler.address", reason, f"sampler.address={training}, as strategy.address")


def training_address(strategy: object) -> str | None:
    """Return the address of the cluster in which Ray has started the processes that train."""
    address: str | None = getattr(strategy, "address", None)
    return address


def cluster_address(config: RaySamplerConfig) -> str | None:
    """Return the address of the cluster; None for one that ends with the run."""
    address = config.address or os.environ.get(ADDRESS)
    return None if address in ("", "local") else address
