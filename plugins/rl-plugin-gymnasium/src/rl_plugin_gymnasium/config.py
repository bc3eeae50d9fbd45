"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from rlcore.config.schema import LARGEST, Table


class EnvironmentConfig(Table):
    """``[environment]``: the limit of an episode."""

    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 20
    """Maximum number of model turns. The environment may have a lower limit of its own."""


class DataConfig(Table):
    """``[data]``: an environment, how it is shown, and its seeds."""

    make: str = "FrozenLake-v1"
    """Id for ``gymnasium.make``; ``module:ID`` imports the module, which registers the id."""
    arguments: dict[str, Any] = {}
    """Arguments for ``gymnasium.make``, such as ``{ is_slippery = false }``."""
    show: Literal["observation", "ansi"] = "observation"
    """What the model sees: the observation as text, or the text of the render mode ``ansi``."""
    actions: list[str] = []
    """Names of the discrete actions, in order; without them, the model answers with their numbers."""
    instructions: str | None = None
    """Text before the first observation; None names the environment and its actions."""
    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Number of training tasks, with the seeds from 0."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 32
    """Number of held-out tasks, with the seeds from 2³¹."""
