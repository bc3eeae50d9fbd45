"""Weights in a folder, as an evaluation passes them to its engine, and the number of CPU threads for a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlcore.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWeights:
    """A `WeightSource` for a Hugging Face folder, without a loaded module."""

    folder: Path | None
    """None for an engine that provides its own model."""
    version: int = 0
    module: None = None


SMALL_MODEL = 5_000_000
"""Number of parameters below which synchronising threads can take longer than the computation."""

_WAITING = "OMP_WAIT_POLICY"
_TURNS = "GOMP_SPINCOUNT", "1000"
"""Turns of the waiting loop before a thread sleeps: enough to bridge the gap between two short operations."""


def let_waiting_threads_sleep() -> None:
    """Make OpenMP threads sleep soon while they wait, unless ``OMP_WAIT_POLICY`` is set.

    By default they spin for milliseconds. On a busy machine, a spinning thread occupies the core that the other thread
    needs, and a step takes several times as long. OpenMP reads the variables once, when torch is imported, so calling
    this later has no effect.
    """
    if "torch" not in sys.modules and _WAITING not in os.environ:
        os.environ[_WAITING] = "passive"
        os.environ.setdefault(*_TURNS)


def cpu_threads(parameters: int) -> int | None:
    """The number of CPU threads for a model; None keeps the default of torch.

    One for a small model when waiting threads spin (`let_waiting_threads_sleep`). ``OMP_NUM_THREADS`` overrides it.
    """
    spinning = os.environ.get(_WAITING, "").lower() != "passive"
    return 1 if parameters < SMALL_MODEL and spinning and "OMP_NUM_THREADS" not in os.environ else None


def check_complete(missing: Iterable[str], folder: Path) -> None:
    """Reject a model with missing tensors, which loading would silently fill with random values."""
    if absent := sorted(missing):
        raise UserError(
            "the weights of the model are incomplete",
            found=f"{len(absent)} missing tensors, such as {absent[0]}",
            where=str(folder),
            fix="copy all weight files, and the matching config.json",
        )
