"""The OpenMP threads with which a thread of this process computes."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

HARD = 2
"""``omp_pause_hard`` of OpenMP 5.0."""


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
    import torch

    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "omp_pause_resource_all"):
            return library
    return None


__all__ = ["release_thread_team"]
