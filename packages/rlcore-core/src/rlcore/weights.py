"""Weights that stand in a folder, as an evaluation gives its engine, and how many threads weights are worth."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlcore.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWeights:
    """A `WeightSource` of a Hugging Face folder, without a live module."""

    folder: Path | None
    """None for an engine that brings its own model."""
    version: int = 0
    module: None = None


SMALL_MODEL = 5_000_000
"""Parameters below which one operation is short against the time that a thread may be kept waiting."""

_WAITING = "OMP_WAIT_POLICY"


def let_waiting_threads_sleep() -> None:
    """Have threads that share an operation sleep while they wait for each other, unless the user decided otherwise.

    By default they spin. That gains little on an idle machine, and on a busy one a thread that spins keeps the core
    from the one it waits for: a step takes several times as long. The library reads it once, when torch is imported,
    so this does nothing later.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(_WAITING, "passive")


def cpu_threads(parameters: int) -> int | None:
    """How many threads a model on a CPU should compute with; None leaves the library's own choice.

    One, for a small model, where waiting threads spin (`let_waiting_threads_sleep`). ``OMP_NUM_THREADS`` overrides.
    """
    spinning = os.environ.get(_WAITING, "").lower() != "passive"
    return 1 if parameters < SMALL_MODEL and spinning and "OMP_NUM_THREADS" not in os.environ else None


def check_complete(missing: Iterable[str], folder: Path) -> None:
    """Refuse a model of which tensors are missing: loading would fill them with random numbers, silently."""
    if absent := sorted(missing):
        raise UserError(
            "the weights of the model are not complete",
            found=f"{len(absent)} are missing, such as {absent[0]}",
            where=str(folder),
            mend="copy all files of the weights, and take the config.json that belongs to them",
        )
