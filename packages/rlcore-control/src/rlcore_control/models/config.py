"""Options of the compact vision-language-action model. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from rlcore.config.schema import Table

Size = Annotated[int, Field(ge=1, le=2**16)]


class GaussianConfig(Table):
    """The head ``gaussian``: a normal distribution around a predicted chunk."""

    initial_std: Annotated[float, Field(gt=0, le=10)] = 0.5
    """Initial standard deviation of normalised actions, whose range is -1 to 1. It is a trained parameter."""
    bounds: Literal["clamp", "tanh"] = "clamp"
    """How actions are kept within the limits: cut there, or squashed, where the density is that of squashed actions."""


class TokensConfig(Table):
    """The head ``tokens``: each value of a chunk is one of several bins."""

    bins: Annotated[int, Field(ge=2, le=2**12)] = 64
    """Number of equal bins of the range of an action."""


class FlowConfig(Table):
    """The head ``flow``: a chunk is made from noise, by following a learned velocity."""

    steps: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of integration steps."""
    noise: Literal["sde", "learned"] = "sde"
    """Noise of the steps: that of a differential equation with the marginals of the flow (Flow-SDE), or with a learned
    standard deviation (ReinFlow)."""
    noise_level: Annotated[float, Field(gt=0, le=10)] = 0.5
    """Scale of the noise for ``sde``, and its initial standard deviation in a step for ``learned``."""


class TinyVLAConfig(Table):
    """``[model.builder]`` for ``builtin:tiny-vla``. The defaults give about 0.2 million parameters."""

    state: Annotated[int, Field(ge=0, le=2**16)] | None = None
    """Number of values of the state; None uses that of the environment. With 0, the state is not read."""
    cameras: list[str] | None = None
    """Names of the cameras that the model sees; None uses all of the environment, and ``[]`` none."""
    chunk: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of actions that are chosen at once."""
    head: Literal["gaussian", "tokens", "flow"] = "gaussian"
    """How actions are chosen: ``gaussian``, ``tokens`` or ``flow``."""
    gaussian: GaussianConfig = GaussianConfig()
    """Options of the head ``gaussian``."""
    tokens: TokensConfig = TokensConfig()
    """Options of the head ``tokens``."""
    flow: FlowConfig = FlowConfig()
    """Options of the head ``flow``."""
    width: Size = 64
    """Width of the features; a multiple of ``heads``."""
    layers: Annotated[int, Field(ge=0, le=100)] = 2
    """Number of transformer blocks over the tokens. With 0, all inputs are added and pass through an MLP."""
    heads: Size = 4
    """Number of attention heads."""
    instruction_length: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of words of the instruction that the model reads; 0 gives a model without an instruction."""
    vocabulary: Annotated[int, Field(ge=2, le=2**20)] = 1024
    """Number of different words: each word is hashed to one of them."""
    image_size: Annotated[int, Field(ge=16, le=1024)] = 64
    """Side of the pictures, to which larger and smaller ones are resized; a multiple of 16."""
    image_channels: Size = 24
    """Channels of the first convolution of the image encoder; the next ones have twice as many."""

    @model_validator(mode="after")
    def _is_consistent(self) -> TinyVLAConfig:
        if self.width % self.heads:
            raise ValueError(f"needs a width that is a multiple of heads; found {self.width} and {self.heads}")
        if self.image_size % 16:
            raise ValueError(f"needs an image_size that is a multiple of 16; found {self.image_size}")
        return self
