"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter
from rlcore.config.schema import LARGEST, Table
from rlcore.endpoints.options import BaseUrl, KeyVariable, NoKey

DEMO = "demo"
HELD_OUT = 2**30
"""The first seed of held-out tasks."""
_URL = TypeAdapter(BaseUrl)


def _address(text: str) -> str:
    return text if text == DEMO else _URL.validate_python(text)


class ServerTable(Table):
    """The server of an environment."""

    url: Annotated[str, AfterValidator(_address)] = DEMO
    """URL of the server, such as ``http://127.0.0.1:8000``; ``demo`` starts a server with a small game on this
    machine."""
    api_key_env: KeyVariable = ""
    """Environment variable with a key for the header ``Authorization``, such as ``HF_TOKEN`` for a private Space; empty
    sends none. For localhost, it may be unset."""
    api_key: NoKey = None
    """Not allowed: keys are read only from the environment."""
    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 20
    """Maximum number of model turns of an episode."""


class EnvironmentConfig(ServerTable):
    """``[environment]`` of an OpenEnv server."""

    show: list[str] = []
    """Fields of an observation that the model sees, in this order; empty shows all of them except ``metadata``."""


class DataConfig(Table):
    """``[data]`` of an OpenEnv server: seeds."""

    prompt: str | None = None
    """Text before the first observation, such as the rules; None adds none."""
    reset: dict[str, Any] = {}
    """Arguments of every reset besides the seed. The server ignores those that its environment does not accept."""
    examples: list[str] = []
    """Answers of which the demonstrations for an untrained model choose at random; empty provides none."""
    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Number of training tasks, with the seeds from 0."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 64
    """Number of held-out tasks, with the seeds from 2³⁰."""


class RowsConfig(Table):
    """``[data]`` of a NeMo Gym server: rows in the format of NeMo Gym."""

    train: str = DEMO
    """File with training rows: JSON lines, JSON or parquet; ``demo`` generates those of the demo server."""
    evaluation: str = DEMO
    """File with held-out rows; ``demo`` generates other ones."""


__all__ = ["DEMO", "HELD_OUT", "DataConfig", "EnvironmentConfig", "RowsConfig", "ServerTable"]
