"""What a control policy observes, and which actions it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlcore.errors import ConfigError

IMAGES = "images/"
"""Start of the key of a camera's picture in an observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spaces:
    """The sizes of observations and the limits of actions.

    An observation is a dict of tensors with a leading batch axis B: ``images/<camera>`` uint8 [B, height, width, 3],
    ``state`` float32 [B, S] if S is not 0, and ``instruction`` int64 [B, L] if the model reads one.
    """

    state: int = 0
    """S, the number of values in ``state``; 0 means that there is no state."""
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Height and width of the pictures of each camera."""
    low_A: tuple[float, ...]
    """Smallest value of each dimension of an action, in the environment's units."""
    high_A: tuple[float, ...]
    """Largest value of each dimension of an action."""

    def __post_init__(self) -> None:
        wrong = None
        if not self.low_A or len(self.low_A) != len(self.high_A):
            wrong = f"{len(self.low_A)} lower and {len(self.high_A)} upper limits of an action"
        elif not all(-1e9 < low < high < 1e9 for low, high in zip(self.low_A, self.high_A, strict=True)):
            wrong = f"limits of actions from {list(self.low_A)} to {list(self.high_A)}"
        elif self.state == 0 and not self.cameras:
            wrong = "neither a state nor a camera"
        if wrong:
            raise ConfigError(
                "a control policy needs an observation, and actions between finite limits",
                found=wrong,
                where="the spaces of the environment",
                fix="wrap the environment, for example in gymnasium.wrappers.RescaleAction",
            )

    @property
    def actions(self) -> int:
        """A, the number of values in an action."""
        return len(self.low_A)
