"""Configuration of the sampler of control environments. Imports neither torch nor gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from rlcore.config.schema import LARGEST, Table

Inputs: TypeAlias = Mapping[str, str | tuple[str, ...]]
INPUTS = "sampler.inputs"
"""The name of the key, for messages."""


class ControlSamplerConfig(Table):
    """``[sampler]`` with ``id = "control"``: how control environments are run."""

    environments: Annotated[int, Field(ge=1, le=2**16)] = 16
    """Maximum number of environments that are stepped together. It does not affect the results."""
    vector: Literal["auto", "sync", "async"] = "auto"
    """Whether they run in this process (``sync``) or in one process per core (``async``); ``auto`` measures a step."""
    max_steps: Annotated[int, Field(ge=1, le=LARGEST)] = 1000
    """An episode is truncated after this many steps of the environment, unless it has a lower limit of its own."""
    inputs: Inputs = {}
    """What the policy reads of the environment's observation: under ``state``, a key or a list of keys whose numbers
    are joined, and under the name of each of its cameras, the key of a picture. Without ``state``, all numbers are
    joined; pictures that are not named keep their names."""


def inputs_of(sampler: object) -> Inputs:
    """The inputs of the options of any sampler; none if it is another one."""
    return sampler.inputs if isinstance(sampler, ControlSamplerConfig) else {}
