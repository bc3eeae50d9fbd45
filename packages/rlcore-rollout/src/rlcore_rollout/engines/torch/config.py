"""Options of the torch engine, the table ``rollout.torch``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class TorchEngineConfig(BaseModel):
    """Batching of the engine that samples in this process."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    """Number of sequences that are decoded together. Further calls wait in order of arrival."""
    deterministic: bool | None = None
    """Whether completions are bitwise independent of the rest of their batch; None means yes on a CPU, no on a GPU."""
