"""Options of the reward."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import Count, Table


class RewardModelConfig(Table):
    """Keys of ``reward-model``."""

    model: Annotated[str, Field(min_length=1)]
    """Folder of a sequence classifier with one label, or a run of the trainer ``reward-model``."""
    device: str = "auto"
    """Where it computes: ``cpu``, ``cuda``, ``cuda:N``; ``auto`` is a GPU if there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of its weights; ``auto`` is float32 on a CPU and bfloat16 on a GPU."""
    chat_format: str = "auto"
    """Chat format that renders the conversations; ``auto`` detects that of the folder."""
    tokens_per_batch: Count = 16384
    """Maximum number of tokens that a GPU computes at once, with padding. A CPU computes one conversation after the
    other, so that a score does not depend on others."""
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 600.0
    """Seconds after which a score has failed, with the time to load the model and the wait for other scores."""
