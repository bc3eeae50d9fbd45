"""Options of the built-in models. Does not import torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import Table

Size = Annotated[int, Field(ge=1)]


class TinyQwen2Config(Table):
    """``[model.builder]`` for ``builtin:tiny-qwen2``. The defaults give about a million parameters."""

    layers: Size = 4
    """Number of transformer blocks."""
    width: Size = 128
    """Width of the residual stream; a multiple of twice ``heads``."""
    heads: Size = 4
    """Number of attention heads."""
    feed_forward: Size = 384
    """Hidden width of the feed-forward layers."""
    vocabulary: Annotated[int, Field(ge=300)] = 600
    """Maximum vocabulary size of the tokenizer."""
    positions: Annotated[int, Field(ge=64)] = 1024
    """Maximum sequence length."""
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of the rotary position embedding."""
    initial_std: Annotated[float, Field(gt=0)] = 0.05
    """Standard deviation of the initial weights. It is larger than usual, which speeds up short training from
    scratch."""
