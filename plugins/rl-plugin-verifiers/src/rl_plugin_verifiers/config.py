"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator
from rlcore.config.schema import LARGEST, Table


class EnvironmentConfig(Table):
    """``[environment]``: the taskset, and where it runs."""

    taskset: str = "rlcore-prices"
    """Id of a taskset that is installed in the interpreter, such as ``gsm8k-v1``, or a file such as ``my_tasks.py``.
    ``rlcore-prices`` is the example of this plugin."""
    options: dict[str, Any] = {}
    """Keys of the taskset's configuration, such as ``{ split = "train" }``."""
    python: str | None = None
    """Path of the interpreter that has verifiers; None uses that in the environment variable ``RLCORE_VERIFIERS``, or
    this one."""
    variables: dict[str, str] = {}
    """Environment variables of the interpreter, besides those that are passed on. A taskset with judges needs a key."""
    servers: list[str] = []
    """Not supported: the taskset asks the policy on this machine."""
    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 16
    """Maximum number of answers of the policy in an episode."""

    @field_validator("servers")
    @classmethod
    def _no_servers(cls, servers: list[str]) -> list[str]:
        if servers:
            raise ValueError("the taskset asks the policy on this machine, so its environment cannot run on servers")
        return servers


class DataConfig(Table):
    """``[data]``: which tasks are used."""

    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Maximum number of training tasks: those after the held-out ones."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 64
    """Number of held-out tasks: the first ones of the taskset."""
    evaluation_options: dict[str, Any] = {}
    """Keys of the taskset's configuration for the held-out tasks, such as ``{ split = "test" }``. If there are any,
    the training tasks begin with the first task of their own split."""
    answer: str = ""
    """Field of a task with a right answer, from which demonstrations for the warm-up of an untrained model are made."""
