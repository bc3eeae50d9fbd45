"""What happens at which step: the schedule of a run, and the learning rate as a stateless function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rlcore.config.schema import MetricChoice
from rlcore.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What happens at which step."""

    steps: int
    learning_rate: Callable[[int], float]
    """The learning rate of a step, from 1."""
    seed: int = 0
    critic_only: int = 0
    """Number of initial steps in which only the critic is trained."""
    evaluate_every: int = 0
    """Steps between evaluations; the last step is always evaluated, unless this is 0."""
    evaluation_tasks: Sequence[Task] = ()
    success: float = 1.0
    """Score from which a trajectory counts as a success."""
    max_new_tokens: int = 256
    """Limit of one generation, in tokens."""
    best: MetricChoice = field(default_factory=MetricChoice)
    """The metric that decides the best step."""
    introduction: Iterable[str] = ()
    """Lines printed before the first step."""


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
