"""Options of the torch engine, the table ``rollout.torch``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class TorchEngineConfig(BaseModel):
    """How the engine that samples in this process batches."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    """Sequences that are decoded together; further calls wait in the order in which they came."""
    deterministic: bool | None = None
    """Whether a completion's bits may not depend on what shares its batch; None means yes on a CPU, no on a GPU."""
