"""The result of a merge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Summary of the written output."""

    folder: Path
    layout: str
    tensors: int
    bytes: int
    seconds: float
    files: tuple[str, ...]
    notes: tuple[str, ...]
