"""Configuration of the environment ``trl-environment``: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from rlcore.config.schema import LARGEST, Files, Table, Texts


class TrlEnvironmentConfig(Table):
    """``[environment]``: what ``GRPOTrainer`` takes as ``environment_factory`` and ``reward_funcs``."""

    factory: str = "rlcore_compat.counters:Counter"
    """The class, or a function that returns an object: ``module:Class`` or ``file.py:Class``."""
    rewards: Texts = []
    """Reward functions with TRL's arguments ``prompts``, ``completions``, ``environments`` and those of the columns,
    as ``module:function`` or ``file.py:function``. A method ``get_reward`` of the class is added to them."""
    reward_weights: list[float] = []
    """One weight for each function; without any, 1. The weight of ``get_reward`` is 1."""
    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 10
    """Maximum number of answers of the model. Calls in the last one are not executed."""
    max_tool_characters: Annotated[int, Field(ge=64, le=LARGEST)] = 16384
    """Longer results of methods are shortened in the middle."""

    @model_validator(mode="after")
    def _weights_match(self) -> Self:
        if self.reward_weights and len(self.reward_weights) != len(self.rewards):
            raise ValueError(f"{len(self.rewards)} rewards need as many reward_weights, not {len(self.reward_weights)}")
        return self


Tasks = Annotated[int, Field(ge=1, le=LARGEST)] | Files


class TrlDataConfig(Table):
    """``[data]``: a number of tasks that ``reset`` makes itself, or rows."""

    train: Tasks = 1024
    """A number of tasks, or files of rows (.json, .jsonl, .parquet). The column ``prompt`` of a row is the prompt, and
    ``reset`` gets all columns."""
    evaluation: Tasks = 64
    """Held-out tasks: a number, or files."""
