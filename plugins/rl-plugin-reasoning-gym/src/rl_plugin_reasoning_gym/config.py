"""Configuration: ``[data]`` and ``[[reward]]``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from rlcore.config.schema import LARGEST, Table


class Generator(Table):
    """A generator of a mixture."""

    name: str
    """Name of the generator, such as ``chain_sum``."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Share of the tasks, relative to the other generators."""
    level: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    """Level of the generator's curriculum: 0 is the easiest, and a level above the highest is the highest. None uses
    the generator's default options."""
    options: dict[str, Any] = {}
    """Options of the generator, such as ``{ max_terms = 3 }``. They override those of the level."""


def _as_tables(value: object) -> object:
    names = [value] if isinstance(value, str) else value
    return [{"name": one} if isinstance(one, str) else one for one in names] if isinstance(names, list) else names


class DataConfig(Table):
    """``[data]``: generated tasks."""

    generators: Annotated[list[Generator], BeforeValidator(_as_tables), Field(min_length=1)]
    """Names of generators, or tables with ``name``, ``weight``, ``level`` and ``options``. A generator may occur
    several times, such as with different levels."""
    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Number of training tasks. There are fewer if the generators have fewer different questions."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 64
    """Number of held-out tasks. Training contains none of their questions."""
    seed: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Seed of the tasks."""
    system_prompt: str = "default"
    """A prompt of reasoning-gym (``default``, ``simple``, ``direct``, ``chain_of_draft``, ``DeepSeekZero``), or a text
    that contains a space. An empty text adds no system message."""


class RewardConfig(Table):
    """``[[reward]]``: where the answer is."""

    tag: Annotated[str, Field(pattern=r"^[A-Za-z_]{0,32}$")] = "answer"
    """The last text between ``<tag>`` and ``</tag>`` is the answer. An empty tag takes the whole response."""
