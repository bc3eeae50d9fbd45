"""The tables of this plugin: ``[environment]``, ``[data]`` and the keys of ``rlcore data prepare gsm8k-tools``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from rlcore.config.schema import Table


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Files = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]


class EnvironmentConfig(Table):
    """``[environment]``: how a problem is presented."""

    id: str = "gsm8k-tools"
    """The environment."""
    tools: Annotated[list[str], BeforeValidator(_as_list)] = ["calculator"]
    """Ids of tools, ``module:function`` or ``file.py:function``; an empty list takes them all away."""
    max_turns: Annotated[int, Field(ge=1)] = 3
    """How often the model may write."""
    system_prompt: str | None = None
    """Put before the problem."""


class DataConfig(Table):
    """``[data]``: which problems."""

    id: str = "gsm8k-tools"
    """The dataset."""
    train: Files = ["generated"]
    """``generated``, or files of rows (.json, .jsonl, .parquet)."""
    evaluation: Files = ["generated"]
    """Held-out problems: ``generated``, or files."""
    on_error: Literal["raise", "skip"] = "raise"
    """A row that cannot be used stops the run, or is left out and counted."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """How many tasks of each split, the first ones; None takes all."""


class PrepareConfig(Table):
    """Keys of ``rlcore data prepare gsm8k-tools``."""

    source: str
    """File with GSM8K's rows (.json, .jsonl, .parquet), or ``generated``."""
    out: str
    """JSONL file to write, which ``data.train`` and ``data.evaluation`` read."""
    conversations: bool = False
    """Write the demonstrations alone, as conversations that ``data.id=chat`` reads and the trainer ``sft`` imitates."""
    split: Literal["train", "evaluation"] = "train"
    """Which generated problems; those for evaluation share no sentence and no pair of numbers with the others."""
    overwrite: bool = False
    """Replace an existing file."""
    on_error: Literal["raise", "skip"] = "raise"
    """A row that cannot be used stops, or is left out and counted."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """How many rows, the first ones; None takes all."""
