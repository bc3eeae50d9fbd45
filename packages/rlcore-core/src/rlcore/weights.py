"""Weights that stand in a folder: what an evaluation gives its engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWeights:
    """A `WeightSource` of a Hugging Face folder, without a live module."""

    folder: Path
    version: int = 0
    module: None = None
