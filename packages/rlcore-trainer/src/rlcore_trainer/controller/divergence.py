"""Stop a run whose numbers are no longer finite, before they reach a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rlcore.errors import DivergenceError


def require_finite(
    numbers: Mapping[str, float], when: str, *, kept: Path | None = None, key: str = "trainer.learning_rate"
) -> None:
    """Check the numbers of a step, which are the same in all processes.

    Args:
        numbers: values by name
        when: the step, for the message
        kept: the last checkpoint
        key: the key of the learning rate

    Raises:
        DivergenceError: a number is NaN or infinite.
    """
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise diverged(f"the {name} is {value} at {when}", kept=kept, key=key)


def diverged(message: str, *, kept: Path | None, key: str = "trainer.learning_rate") -> DivergenceError:
    """Return the error that names the last checkpoint and what to change."""
    return DivergenceError(
        message,
        found=f"the last good checkpoint is {kept}" if kept else "no checkpoint was written before",
        fix=f"lower {key} or trainer.max_gradient_norm, avoid model.dtype=float16, or inspect the data of this step",
    )
