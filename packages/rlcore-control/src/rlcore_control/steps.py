"""What environments return, as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Observation = Mapping[str, Array]
"""Arrays by key. An environment whose observation is one array has the key `SINGLE`."""

SINGLE = "state"


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a reset."""

    observation: Observation
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step. The observation is always the one after this action, also at the end of an episode."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the episode is over, so that the environment must be reset."""
        return self.terminated or self.truncated


def arrays_of(observation: Any) -> dict[str, Array]:
    """Return copies of the arrays of an observation. Texts and other values that are not numbers are left out."""
    found = observation if isinstance(observation, Mapping) else {SINGLE: observation}
    arrays = {str(key): np.array(value) for key, value in found.items()}
    return {key: value for key, value in arrays.items() if value.dtype.kind in "biuf"}
