"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rlcore.config.schema import LARGEST, Table


class EnvironmentConfig(Table):
    """``[environment]``: the limit of an episode."""

    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 20
    """Maximum number of model turns. Most environments also have an argument ``max_turns`` of their own."""


class DataConfig(Table):
    """``[data]``: an environment and its seeds."""

    env_id: str = "game:GuessTheNumber-v0-easy"
    """Id for ``gem.make``, such as ``game:Mastermind-v0-easy`` or ``rg:ab``."""
    arguments: dict[str, Any] = {}
    """Arguments for ``gem.make``, such as ``{ max_turns = 3 }``."""
    opening: str | None = None
    """Text instead of the first observation, for games whose first observation has only the rules; None keeps it."""
    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Number of training tasks, with the seeds from 0."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 64
    """Number of held-out tasks, with the seeds from 2³¹."""
