"""Weights that stand in a folder, as an evaluation gives its engine, and how many threads weights are worth."""

from __future__ import annotations

import os
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
"""Parameters below which one operation is too small to be shared among threads."""


def cpu_threads(parameters: int) -> int | None:
    """How many threads a model on a CPU should compute with; None leaves the library's own choice.

    Threads that share small operations wait for each other at every one: idle cores gain a little, and with anything
    else running on the machine a step takes several times as long. ``OMP_NUM_THREADS`` overrides.
    """
    return 1 if parameters < SMALL_MODEL and "OMP_NUM_THREADS" not in os.environ else None


def check_complete(missing: Iterable[str], folder: Path) -> None:
    """Refuse a model of which tensors are missing: loading would fill them with random numbers, silently."""
    if absent := sorted(missing):
        raise UserError(
            "the weights of the model are not complete",
            found=f"{len(absent)} are missing, such as {absent[0]}",
            where=str(folder),
            mend="copy all files of the weights, and take the config.json that belongs to them",
        )
