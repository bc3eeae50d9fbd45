"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup_steps: int = 0, schedule: str = "constant") -> float:
    """The rate of step 1 … ``steps``: up to ``peak`` at step ``warmup_steps``, then constant or down towards zero.

    ``linear`` and ``cosine`` would reach zero one step after the last, so that every step learns something.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    if schedule == "constant":
        return peak
    progress = (step - warmup_steps - 1) / max(1, steps - warmup_steps)
    return peak * (1 - progress if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))
