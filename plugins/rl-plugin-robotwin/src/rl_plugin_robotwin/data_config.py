"""The tables ``[data]`` and of ``rlcore data prepare robotwin``. Imports neither numpy nor SAPIEN."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from rlcore.config.schema import LARGEST, Table

from rl_plugin_robotwin.config import EnvironmentConfig

HELD_OUT = 2**30
"""First seed of the evaluation tasks."""
SHOWN = 2**29
"""First seed of the demonstrations."""
MOST = 2**20
"""Largest number of tasks."""


class SeedsConfig(Table):
    """``[data]``: seeds of the environment's task. Training, evaluation and demonstrations never share a seed."""

    train: Annotated[int, Field(ge=1, le=MOST)] = 4096
    """Number of training tasks, with the seeds from 0."""
    evaluation: Annotated[int, Field(ge=1, le=MOST)] = 64
    """Number of held-out tasks, with the seeds from 2³⁰."""


class DataConfig(SeedsConfig):
    """``[data]`` of a bundled task: seeds, and demonstrations of its expert."""

    demonstrations: Path | None = None
    """A file of ``rlcore data prepare robotwin``; none to record demonstrations of the expert at the start of a run."""


class PrepareConfig(EnvironmentConfig):
    """Options of ``rlcore data prepare robotwin``: the environment, and what is recorded."""

    out: Path
    """The file to write, which ends in ``.npz``."""
    count: Annotated[int, Field(ge=1, le=LARGEST)] = 50
    """Number of successful episodes of the expert."""
    first_seed: Annotated[int, Field(ge=0, le=2**31)] = SHOWN
    """Seed of the first episode."""
