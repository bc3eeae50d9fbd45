"""Options of the built-in models. Does not import torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from rlcore.config.schema import Table

Size = Annotated[int, Field(ge=1, le=2**16)]
Pixels = Annotated[int, Field(ge=28**2, le=2**32)]
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


class TinyVisionConfig(Table):
    """Options that the built-in vision-language models share."""

    min_pixels: Pixels
    max_pixels: Pixels
    layers: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of transformer blocks."""
    width: Size = 64
    """Width of the residual stream; a multiple of eight times ``heads``."""
    heads: Size = 2
    """Number of attention heads."""
    key_value_heads: Size = 1
    """Number of key and value heads; divides ``heads``."""
    feed_forward: Size = 192
    """Hidden width of the feed-forward layers."""
    vision_layers: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of blocks of the vision tower."""
    vision_width: Size = 48
    """Width of the vision tower; a multiple of four times ``vision_heads``."""
    vision_heads: Size = 2
    """Number of attention heads of the vision tower."""
    vision_feed_forward: Size = 96
    """Hidden width of the feed-forward layers of the vision tower."""
    vocabulary: Annotated[int, Field(ge=300, le=1_000_000)] = 600
    """Maximum vocabulary size of the tokenizer."""
    positions: Annotated[int, Field(ge=64, le=2**24)] = 1024
    """Maximum sequence length."""
    rope_theta: Annotated[float, Field(gt=0)] = 4.0
    """Base of the rotary position embedding. It is small, so that positions on the small grids of images differ."""
    initial_std: Annotated[float, Field(gt=0)] = 0.08
    """Standard deviation of the initial weights. It is larger than usual, which speeds up short training from
    scratch."""

    @model_validator(mode="after")
    def _is_consistent(self) -> TinyVisionConfig:
        for width, heads, factor in (("width", "heads", 8), ("vision_width", "vision_heads", 4)):
            step = factor * getattr(self, heads)
            if getattr(self, width) % step:
                found = f"{width} = {getattr(self, width)}, {heads} = {getattr(self, heads)}"
                raise ValueError(f"needs a {width} that is a multiple of {factor} x {heads} = {step}; found {found}")
        if self.heads % self.key_value_heads:
            found = f"heads = {self.heads}, key_value_heads = {self.key_value_heads}"
            raise ValueError(f"needs heads that are a multiple of key_value_heads; found {found}")
        if self.min_pixels > self.max_pixels:
            found = f"min_pixels = {self.min_pixels}, max_pixels = {self.max_pixels}"
            raise ValueError(f"needs min_pixels of at most max_pixels; found {found}")
        text = self.layers * (4 * self.width**2 + 3 * self.width * self.feed_forward)
        vision = self.vision_layers * (4 * self.vision_width**2 + 3 * self.vision_width * self.vision_feed_forward)
        other = 2 * self.vocabulary * self.width + 17 * self.vision_width**2 + 1176 * self.vision_width
        parameters = text + vision + other
        if parameters > MOST_PARAMETERS:
            raise ValueError(f"needs at most {MOST_PARAMETERS:,} parameters; found about {parameters:,}")
        return self


class TinyQwen25VLConfig(TinyVisionConfig):
    """``[model.builder]`` for ``builtin:tiny-qwen2.5-vl``. The defaults give about 0.4 million parameters."""

    min_pixels: Pixels = 4 * 28**2
    """A smaller image is enlarged. A visual token has 28 x 28 pixels."""
    max_pixels: Pixels = 64 * 28**2
    """A larger image is reduced."""


class TinyQwen3VLConfig(TinyVisionConfig):
    """``[model.builder]`` for ``builtin:tiny-qwen3-vl``. The defaults give about 0.4 million parameters."""

    min_pixels: Pixels = 4 * 32**2
    """A smaller image is enlarged. A visual token has 32 x 32 pixels."""
    max_pixels: Annotated[int, Field(ge=32**2, le=2**32)] = 64 * 32**2
    """A larger image is reduced."""
    vision_positions: Annotated[int, Field(ge=2, le=256)] = 8
    """Side of the square of learned positions, which is interpolated to the patches of an image."""
    deepstack: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of text layers, from the first, that also receive the features of the vision layer with the same number.
    At most ``layers`` and ``vision_layers``."""

    @model_validator(mode="after")
    def _has_the_levels(self) -> TinyQwen3VLConfig:
        if self.deepstack > min(self.layers, self.vision_layers):
            found = f"deepstack = {self.deepstack}, layers = {self.layers}, vision_layers = {self.vision_layers}"
            raise ValueError(f"needs deepstack of at most layers and vision_layers; found {found}")
        return self
