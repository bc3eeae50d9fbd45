"""The reward of a history summary: how well the next step is answered with this summary as its only memory.

GUI-Rise (arXiv 2510.27210) rewards a summary with the mean action reward of answers to the next step. Here the summary
of the trajectory itself is put into the prompt of the next step of the same episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field
from rlcore.config.schema import Table
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import DataError
from rlcore.types import RewardResult, Task, Trajectory

from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import GuiStep
from rlcore_gui.tasks import GuiTask


class HistorySummaryConfig(Table):
    """``[[reward]]`` of a history summary."""

    id: str = ""
    """Id of the reward."""
    samples: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of answers to the next step that are sampled for each summary; 0 uses one greedy answer. In an episode,
    the agent's own next answer is used instead, and none are sampled."""


class HistorySummaryReward:
    """The mean score of the actions that follow the summaries of a trajectory.

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
        texts = [message.text for message in trajectory.messages if message.role == "assistant"]
        answers = [parse(text, self.benchmark.table) for text in texts[: len(known.steps)]]
        scores = self._followed(answers, known.steps)
        if len(answers) == len(known.steps) and not known.steps[-1].is_last:
            if _lacks_next_step(known):
                return RewardResult(
                    value=None, error=f"step {known.steps[0].row_id!r} has no next step: set data.next_step=true"
                )
            if known.next_step is not None and (summary := _summary(answers[-1])) is not None:
                scores.append(await self._sampled(known, known.next_step, summary, context))
        if not scores:
            return RewardResult(value=0.0, components={"summaries": 0.0})
        mean = sum(scores) / len(scores)
        return RewardResult(value=mean, components={"summaries": float(len(scores)), "next_action": mean})

    def _followed(self, answers: Sequence[ParsedAnswer], steps: Sequence[GuiStep]) -> list[float]:
        """The scores of the agent's own answers after each summary."""
        pairs = zip(answers, answers[1:], steps[1:], strict=False)
        return [self.benchmark.score(after.action, step) for one, after, step in pairs if _summary(one) is not None]

    async def _sampled(self, task: GuiTask, step: GuiStep, summary: str, context: EpisodeContext) -> float:
        """The mean score of sampled answers to the next step."""
        prompt = task.prompt(len(task.steps), memory=summary)
        samples = self.config.samples
        sampling = {} if samples else {"temperature": 0.0}
        count = max(1, samples)
        completions = await context.complete((prompt,), images=task.images[-1:], count=count, sampling=sampling)
        answers = (parse(completion.message.text, self.benchmark.table) for completion in completions)
        scores = [self.benchmark.score(answer.action, step) for answer in answers]
        return sum(scores) / len(scores)


def _lacks_next_step(task: GuiTask) -> bool:
    """Whether a task is a single step whose episode goes on, but without its next step."""
    return len(task.steps) == 1 and task.next_step is None and not task.steps[0].is_last


def _summary(answer: ParsedAnswer) -> str | None:
    """The summary of a well-formed answer."""
    return answer.summary if answer.strict else None


__all__ = ["HistorySummaryConfig", "HistorySummaryReward"]
