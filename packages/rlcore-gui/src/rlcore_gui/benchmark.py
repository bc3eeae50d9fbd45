"""What a plugin defines about its data set: actions, scores and metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlcore_gui.actions import Action, ActionTable
from rlcore_gui.answers import ParsedAnswer
from rlcore_gui.metrics import Metrics, StepScores
from rlcore_gui.steps import GuiStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """The parts of a data set that environments, rewards and evaluations share."""

    name: str
    """Id of the environment and of the dataset."""
    table: ActionTable
    score: Callable[[Action | None, GuiStep], float]
    """How well an action solves a step, in [0, 1]; None is an answer without a readable action."""
    measure: Callable[[Sequence[ParsedAnswer], Sequence[GuiStep]], list[StepScores]]
    """The measures of answers to steps."""
    summarize: Callable[[Sequence[StepScores]], Metrics]
    """The metrics of an evaluation under flat names; those of a group begin with its name and a slash."""
    right: str
    """The measure that is 1 if a step is right."""
    shown: tuple[str, ...]
    """Metrics that an evaluation prints, in order."""
    balanced: tuple[str, ...] = ()
    """Prefixes of metrics that are unweighted means over groups; the empty one for names without a slash."""


__all__ = ["Benchmark"]
