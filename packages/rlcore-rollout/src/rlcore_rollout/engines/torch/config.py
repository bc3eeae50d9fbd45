"""Options of the torch engine, the table ``rollout.torch``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import Table

CALL_TOKENS = 1024
"""Maximum number of visual tokens that are encoded together, unless one image has more."""
BATCH_TOKENS = 2048
"""Maximum number of prompt tokens that are computed together."""
FUSED_BYTES = 2**30
"""Models with blocks up to this size get fused copies of their projections; larger ones are read in place."""


class TorchEngineConfig(Table):
    """Batching of the engine that samples in this process."""

    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    """Number of sequences that are decoded together. Further calls wait in order of arrival."""
    deterministic: bool | None = None
    """Whether completions are bitwise independent of the rest of their batch; None means yes on a CPU, no on a GPU."""
