"""Options of the built-in models. Does not import torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from rlcore.config.schema import Table

Size = Annotated[int, Field(ge=1, le=2**16)]
MOST_PARAMETERS = 200_000_000
"""Limit of a model that every run builds anew; a larger one belongs in a folder."""


class TinyQwen2Config(Table):
    """``[model.builder]`` for ``builtin:tiny-qwen2``. The defaults give about a million parameters."""

    layers: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of transformer blocks."""
    width: Size = 128
    """Width of the residual stream; a multiple of twice ``heads``."""
    heads: Size = 4
    """Number of attention heads."""
    feed_forward: Size = 384
    """Hidden width of the feed-forward layers."""
    vocabulary: Annotated[int, Field(ge=300, le=1_000_000)] = 600
    """Maximum vocabulary size of the tokenizer."""
    positions: Annotated[int, Field(ge=64, le=2**24)] = 1024
    """Maximum sequence length."""
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of the rotary position embedding."""
    initial_std: Annotated[float, Field(gt=0)] = 0.05
    """Standard deviation of the initial weights. It is larger than usual, which speeds up short training from
    scratch."""

    @model_validator(mode="after")
    def _is_small(self) -> TinyQwen2Config:
        block = 4 * self.width**2 + 3 * self.width * self.feed_forward
        parameters = self.layers * block + self.vocabulary * self.width
        if parameters > MOST_PARAMETERS:
            raise ValueError(f"needs at most {MOST_PARAMETERS:,} parameters; found about {parameters:,}")
        return self
