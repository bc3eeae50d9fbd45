"""What a plugin defines about its data set: actions, scores and metrics.

A measure is a number of one step, such as whether a click matched. A step has only the measures that apply to it, so a
mean never contains a step of another kind, and a measure that no step has is absent instead of NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlcore_gui.actions import Action, ActionTable
from rlcore_gui.answers import ParsedAnswer
from rlcore_gui.steps import GuiStep

Metrics = dict[str, float]
"""Numbers by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScores:
    """The measures of one step."""

    row_id: str
    episode_id: str
    group: str
    values: Mapping[str, float]

    @classmethod
    def of(cls, step: GuiStep, values: Mapping[str, float]) -> StepScores:
        """The measures of an answer to this step."""
        return cls(row_id=step.row_id, episode_id=step.episode_id, group=step.group, values=values)


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
    components: Mapping[str, str]
    """The components of rewards by name, and the measures that they are."""
    right: str
    """The measure that is 1 if a step is right, which is the value of the reward of the action."""
    shown: tuple[str, ...]
    """Metrics that an evaluation prints, in order."""
    balanced: tuple[str, ...] = ()
    """Prefixes of metrics that are unweighted means over groups; the empty one for names without a slash."""


def means(scores: Iterable[StepScores]) -> Metrics:
    """The mean of each measure over the steps that have it."""
    return mean_of_parts(each.values for each in scores)


def by_group(
    scores: Iterable[StepScores], summarize: Callable[[Sequence[StepScores]], Metrics] = means
) -> dict[str, Metrics]:
    """The metrics of each group, in alphabetical order."""
    parts = _parts(scores, lambda each: each.group)
    return {name: summarize(parts[name]) for name in sorted(parts)}


def mean_of_parts(parts: Iterable[Mapping[str, float]]) -> Metrics:
    """The unweighted mean of each metric over the parts that have it."""
    found: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def macro_by_episode(scores: Iterable[StepScores]) -> Metrics:
    """The mean over episodes of the mean of each measure in an episode."""
    return mean_of_parts(map(means, _parts(scores, lambda each: each.episode_id).values()))


def episode_success(scores: Iterable[StepScores], measure: str) -> float | None:
    """The share of episodes in which this measure is 1 for all steps; None without episodes."""
    episodes = list(_parts(scores, lambda each: each.episode_id).values())
    if not episodes:
        return None
    return sum(all(each.values.get(measure) == 1 for each in steps) for steps in episodes) / len(episodes)


def _parts(scores: Iterable[StepScores], key: Callable[[StepScores], str]) -> dict[str, list[StepScores]]:
    parts: dict[str, list[StepScores]] = {}
    for each in scores:
        parts.setdefault(key(each), []).append(each)
    return parts
