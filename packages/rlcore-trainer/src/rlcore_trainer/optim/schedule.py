"""The learning rate as a stateless function of the step."""

from __future__ import annotations

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup_steps: int = 0, schedule: str = "constant") -> float:
    """Return the learning rate of a step from 1 to ``steps``.

    The rate increases to ``peak`` at ``warmup_steps``, and is then constant or decays towards zero. ``linear`` and
    ``cosine`` reach zero one step after the last, so the rate is positive at every step.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    if schedule == "constant":
        return peak
    progress = (step - warmup_steps - 1) / max(1, steps - warmup_steps)
    return peak * (1 - progress if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))
