"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import LARGEST, Table


class EnvironmentConfig(Table):
    """``[environment]``: the prompt and the limit of an episode."""

    instructions: bool = True
    """Whether prompts explain the actions and the form of an answer. A tiny model learns both from demonstrations."""
    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 8
    """Maximum number of answers of an episode."""


class DataConfig(Table):
    """``[data]``: pages of MiniWoB++ and their seeds."""

    pages: Annotated[list[str], Field(min_length=1)] = ["click-test-2"]
    """Names of pages, such as ``click-button``. The tasks of a split take turns."""
    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Number of training tasks, with the seeds from 0."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 64
    """Number of held-out tasks, with the seeds from 2³¹."""
