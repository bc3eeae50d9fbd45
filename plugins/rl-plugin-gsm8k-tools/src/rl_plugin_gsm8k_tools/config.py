"""Configuration: ``[environment]``, ``[data]`` and the keys of ``rlcore data prepare gsm8k-tools``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import LARGEST, Files, Table, Texts


class EnvironmentConfig(Table):
    """``[environment]``: the tools and the number of turns."""

    id: str = "gsm8k-tools"
    """Id of the environment."""
    tools: Texts = ["calculator"]
    """Ids of tools, ``module:function`` or ``file.py:function``; an empty list removes all tools."""
    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 3
    """Maximum number of model turns."""
    system_prompt: str | None = None
    """System message before the problem."""


class DataConfig(Table):
    """``[data]``: the problems."""

    id: str = "gsm8k-tools"
    """Id of the dataset."""
    train: Files = ["generated"]
    """``generated``, files of rows (.json, .jsonl, .parquet), a folder of them, or a name in the hub's cache."""
    evaluation: Files = ["generated"]
    """Held-out problems: ``generated``, or files."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an invalid row stops the run or is skipped and counted."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Use only the first tasks of each split; None uses all."""


class PreferenceDataConfig(Table):
    """``[data]`` of ``gsm8k-preferences``: generated problems with a right and a wrong calculation."""

    id: str = "gsm8k-preferences"
    """Id of the dataset."""
    pairs: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    """Number of training pairs."""
    swapped: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of training pairs whose answers are swapped, as a control experiment: with 0.5, nothing can be learned."""


class PrepareConfig(Table):
    """Keys of ``rlcore data prepare gsm8k-tools``."""

    source: str
    """File with GSM8K rows (.json, .jsonl, .parquet), or ``generated``."""
    out: str
    """JSONL file to write, for ``data.train`` and ``data.evaluation``."""
    conversations: bool = False
    """Write only the demonstrations, as conversations for ``data.id=chat`` and the trainer ``sft``."""
    max_calculations: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Write only rows whose demonstration has at most this many calculations; None writes all rows."""
    split: Literal["train", "evaluation"] = "train"
    """Split of the generated problems. The splits share no sentence and no pair of numbers."""
    overwrite: bool = False
    """Replace an existing file."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an invalid row stops the command or is skipped and counted."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Use only the first rows; None uses all."""
