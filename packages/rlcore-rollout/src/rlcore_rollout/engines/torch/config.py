"""Options of the torch engine, the table ``rollout.torch``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import Table


class TorchEngineConfig(Table):
    """How the engine that samples in this process batches."""

    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    """Sequences that are decoded together; further calls wait in the order in which they came."""
    deterministic: bool | None = None
    """Whether a completion's bits may not depend on what shares its batch; None means yes on a CPU, no on a GPU."""
