"""Configuration of ``rlcore data prepare`` for data sets of recorded episodes on screens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from rlcore.config.schema import LARGEST, Files, Table


class PrepareTable(Table):
    """Keys that data sets share. Their names in earlier scripts are accepted as ``--name value``."""

    FLAGS: ClassVar[Mapping[str, str]] = {
        "imgs_dir": "images",
        "thinking_results_path": "labels",
        "output_path": "out",
        "output_subset_path": "subset",
        "using_memory_input": "memory",
    }

    source: Files
    """Files of recorded episodes (.json)."""
    images: str
    """Folder of the screenshots. Their names must not leave it."""
    labels: str | None = None
    """File of pseudo-labels (.jsonl), for the memory and for supervised training."""
    memory: bool = False
    """Give each step the summary of the previous step as memory. Needs ``labels``."""
    out: str
    """Parquet file to write."""
    subset: str | None = None
    """Parquet file for held-out episodes, which are then not in ``out``."""
    subset_size: Annotated[int, Field(ge=1, le=LARGEST)] = 300
    """Number of held-out rows. Whole episodes reach it as closely as possible, with equal shares of each domain."""
    seed: int = 0
    """Seed of the choice of held-out episodes."""
    strict: bool = False
    """Write nothing and fail if a step or label cannot be used. Otherwise such steps are only part of the history."""
    overwrite: bool = False
    """Replace existing files."""

    @field_validator("memory")
    @classmethod
    def _needs_labels(cls, memory: bool, known: ValidationInfo) -> bool:
        if memory and not known.data.get("labels"):
            raise ValueError("memory needs labels: the file of pseudo-labels that contain the summaries")
        return memory
