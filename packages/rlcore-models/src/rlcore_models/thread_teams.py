"""The OpenMP threads of this process: how many compute, and the end of those of the calling thread."""

from __future__ import annotations

import ctypes
import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rlcore.models.threads import WAITING, undo_at_end

HARD = 2
"""``omp_pause_hard`` of OpenMP 5.0."""
SMALL_MODEL = 5_000_000
"""Number of parameters below which synchronising threads can take longer than the computation."""


def cpu_threads(parameters: int) -> int | None:
    """The number of CPU threads for a model; None keeps the default of torch.

    One for a small model when waiting threads spin (see `rlcore.models.threads`). ``OMP_NUM_THREADS`` overrides it.
    """
    spinning = os.environ.get(WAITING, "").lower() != "passive"
    return 1 if parameters < SMALL_MODEL and spinning and "OMP_NUM_THREADS" not in os.environ else None


def limit_threads(parameters: int) -> None:
    """Use `cpu_threads` from now on, for a model that was loaded on a CPU; see `rlcore.models.threads.threads_kept`."""
    if threads := cpu_threads(parameters):
        undo_at_end(partial(torch.set_num_threads, torch.get_num_threads()))
        torch.set_num_threads(threads)


def release_thread_team() -> None:
    """End the OpenMP threads of the calling thread. They start again when it computes.

    Engine and trainer compute in two threads of a process, in turns. Each has its own OpenMP threads, which wait
    actively for a moment after an operation. libgomp lets them sleep at once if a process has more of them than cores,
    and waking one takes 10 to 50 µs, several times as long as a small operation. Does nothing without libgomp.
    """
    library = _libgomp()
    if library is not None:
        library.omp_pause_resource_all(HARD)


@cache
def _libgomp() -> Any:
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "omp_pause_resource_all"):
            return library
    return None


__all__ = ["SMALL_MODEL", "cpu_threads", "limit_threads", "release_thread_team"]
