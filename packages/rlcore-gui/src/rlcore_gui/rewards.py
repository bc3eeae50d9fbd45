"""Rewards that score each answer of an episode against its recorded step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field
from rlcore.config.schema import Table
from rlcore.errors import DataError
from rlcore.types import FrozenDict, RewardResult, Task, Trajectory

from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import GuiStep, steps_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerScore:
    """The score of one answer."""

    value: float
    components: Mapping[str, float] = field(default_factory=FrozenDict)
    """What is logged. Every answer that is scored by the same function has the same names."""


ScoreAnswer = Callable[[str, GuiStep], AnswerScore]
"""Scores the text of an answer against the step that it answers."""


class FormConfig(Table):
    """Keys of the recommended rewards ``aitw`` and ``mind2web``."""

    format_weight: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Weight of the strict grammar in the value. The action has the rest."""


class AnswerReward:
    """The mean score of the answers of an episode. A step without an answer is scored as an empty text.

    The value of an episode with one step is the score of its answer. A task without valid steps is not scored.
    """

    def __init__(self, score: ScoreAnswer) -> None:
        self.score = score

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Score the n-th answer against the n-th step."""
        try:
            steps = steps_of(task)
        except DataError as error:
            return RewardResult(value=None, error=str(error))
        return mean([self.score(text, step) for text, step in zip(answers(trajectory, len(steps)), steps, strict=True)])


class ActionReward(AnswerReward):
    """1 if the action is right, else 0."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__(self._score)
        self.benchmark = benchmark

    def _score(self, text: str, step: GuiStep) -> AnswerScore:
        _, scores, components = _judged(self.benchmark, text, step)
        return AnswerScore(value=scores[self.benchmark.right], components=components)


class FormatReward(AnswerReward):
    """1 if the answer follows the strict grammar, else 0."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__(self._score)
        self.benchmark = benchmark

    def _score(self, text: str, step: GuiStep) -> AnswerScore:
        answer = parse(text, self.benchmark.table)
        return AnswerScore(value=float(answer.strict), components={"readable": float(answer.action is not None)})


class WeightedReward(AnswerReward):
    """The score of the action (`Benchmark.score`), and the strict grammar."""

    benchmark: ClassVar[Benchmark]

    def __init__(self, config: FormConfig) -> None:
        super().__init__(self._score)
        self.weight = config.format_weight

    def _score(self, text: str, step: GuiStep) -> AnswerScore:
        answer, _, components = _judged(self.benchmark, text, step)
        value = blend(self.benchmark.score(answer.action, step), float(answer.strict), self.weight)
        return AnswerScore(value=value, components={**components, "format": float(answer.strict)})


def answers(trajectory: Trajectory, count: int) -> list[str]:
    """The first answers of a trajectory. Missing ones are empty."""
    texts = [message.text for message in trajectory.messages if message.role == "assistant"][:count]
    return texts + [""] * (count - len(texts))


def mean(scores: Sequence[AnswerScore]) -> RewardResult:
    """The mean of the values and of each component."""
    count = len(scores)
    names = {name: None for score in scores for name in score.components}
    components = {name: sum(score.components.get(name, 0.0) for score in scores) / count for name in names}
    return RewardResult(value=sum(score.value for score in scores) / count, components=components)


def blend(action: float, form: float, format_weight: float) -> float:
    """The weighted mean of both scores: exactly 1 if both are 1, and 0 if both are 0."""
    return action + format_weight * (form - action)


def _judged(
    benchmark: Benchmark, text: str, step: GuiStep
) -> tuple[ParsedAnswer, Mapping[str, float], Mapping[str, float]]:
    """The answer, its measures and the components."""
    answer = parse(text, benchmark.table)
    (found,) = benchmark.measure([answer], [step])
    return answer, found.values, {name: found.values[measure] for name, measure in benchmark.components.items()}
