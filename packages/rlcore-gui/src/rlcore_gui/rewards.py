"""Rewards that score each answer of an episode against its recorded step, and the summaries by the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field
from rlcore.config.schema import Table
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import DataError
from rlcore.types import FrozenDict, RewardResult, Task, Trajectory

from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import GuiStep, steps_of
from rlcore_gui.tasks import GuiTask


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


class HistorySummaryConfig(Table):
    """``[[reward]]`` of a history summary."""

    id: str = ""
    """Id of the reward."""
    samples: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of answers to the next step that are sampled for each summary; 0 uses one greedy answer. In an episode,
    the agent's own next answer is used instead, and none are sampled."""


class HistorySummaryReward:
    """The mean score of the actions that follow the summaries of a trajectory.

    GUI-Rise (arXiv 2510.27210) rewards a summary with the mean action reward of answers to the next step. Here the
    summary of the trajectory itself is put into the prompt of the next step of the same episode, as its only memory.

    A summary has a score if it is in a well-formed answer that is not the last one of its episode. A trajectory without
    such a summary has the value 0, adds nothing to the sum of the rewards, and is not in the mean of the component
    ``next_action``. The component ``summaries`` is the number of summaries with a score.
    """

    benchmark: ClassVar[Benchmark]

    def __init__(self, config: HistorySummaryConfig) -> None:
        self.config = config

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """Reject single steps without the next step of their episode, before a run starts.

        Raises:
            DataError: a task has no next step although its episode goes on, or it is not a task of recorded steps.
        """
        for task in tasks:
            known = GuiTask.of(task)
            if _lacks_next_step(known):
                raise DataError(
                    "a reward for history summaries needs the next step of each task",
                    found=f"task {task.id!r} without it",
                    fix="set data.next_step=true, or data.episodes=true to use the agent's own next answer",
                )
            if known.next_step is not None:  # the others are made alike
                return

    async def __call__(self, trajectory: Trajectory, task: Task, context: EpisodeContext) -> RewardResult:
        """Score the summaries, and sample answers to the next step if the task has only one."""
        try:
            known = GuiTask.of(task)
        except DataError as error:
            return RewardResult(value=None, error=str(error))
        parsed = [parse(text, self.benchmark.table) for text in _texts(trajectory)[: len(known.steps)]]
        scores = self._followed(parsed, known.steps)
        if len(parsed) == len(known.steps) and not known.steps[-1].is_last:
            if _lacks_next_step(known):
                return RewardResult(
                    value=None, error=f"step {known.steps[0].row_id!r} has no next step: set data.next_step=true"
                )
            if known.next_step is not None and (summary := _summary(parsed[-1])) is not None:
                scores.append(await self._sampled(known, known.next_step, summary, context))
        if not scores:
            return RewardResult(value=0.0, components={"summaries": 0.0})
        mean = sum(scores) / len(scores)
        return RewardResult(value=mean, components={"summaries": float(len(scores)), "next_action": mean})

    def _followed(self, parsed: Sequence[ParsedAnswer], steps: Sequence[GuiStep]) -> list[float]:
        """The scores of the agent's own answers after each summary."""
        pairs = zip(parsed, parsed[1:], steps[1:], strict=False)
        return [self.benchmark.score(after.action, step) for one, after, step in pairs if _summary(one) is not None]

    async def _sampled(self, task: GuiTask, step: GuiStep, summary: str, context: EpisodeContext) -> float:
        """The mean score of sampled answers to the next step."""
        prompt = task.prompt(len(task.steps), memory=summary)
        samples = self.config.samples
        sampling = {} if samples else {"temperature": 0.0}
        count = max(1, samples)
        completions = await context.complete((prompt,), images=task.images[-1:], count=count, sampling=sampling)
        sampled = (parse(completion.message.text, self.benchmark.table) for completion in completions)
        scores = [self.benchmark.score(answer.action, step) for answer in sampled]
        return sum(scores) / len(scores)


def answers(trajectory: Trajectory, count: int) -> list[str]:
    """The first answers of a trajectory. Missing ones are empty."""
    texts = _texts(trajectory)[:count]
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


def _texts(trajectory: Trajectory) -> list[str]:
    return [message.text for message in trajectory.messages if message.role == "assistant"]


def _lacks_next_step(task: GuiTask) -> bool:
    """Whether a task is a single step whose episode goes on, but without its next step."""
    return len(task.steps) == 1 and task.next_step is None and not task.steps[0].is_last


def _summary(answer: ParsedAnswer) -> str | None:
    """The summary of a well-formed answer."""
    return answer.summary if answer.strict else None
