"""Options of the models that are built on the spot. Imports no torch, as configurations are checked before it loads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import Table

Size = Annotated[int, Field(ge=1)]


class TinyQwen2Config(Table):
    """``[model.builder]`` of ``builtin:tiny-qwen2``. The defaults make about a million parameters."""

    layers: Size = 4
    """Transformer blocks."""
    width: Size = 128
    """Width of the residual stream; a multiple of twice ``heads``."""
    heads: Size = 4
    """Attention heads."""
    feed_forward: Size = 384
    """Width within a block's feed-forward part."""
    vocabulary: Annotated[int, Field(ge=300)] = 600
    """The most tokens that the tokenizer may learn."""
    positions: Annotated[int, Field(ge=64)] = 1024
    """The longest sequence."""
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of the rotary position embedding."""
    initial_std: Annotated[float, Field(gt=0)] = 0.05
    """Standard deviation of the initial matrices. Larger than usual: short training from scratch is quicker with it."""
