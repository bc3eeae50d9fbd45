"""The answers of an evaluation, each with the step that it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.types import Group, Trajectory

from rlcore_gui.actions import Action
from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.benchmark import Benchmark, StepScores
from rlcore_gui.rewards import answers
from rlcore_gui.steps import GuiStep
from rlcore_gui.tasks import GuiTask, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A step, and an answer to it."""

    step: GuiStep
    memory: Memory
    task_id: str
    sample: int
    """Index of the trajectory among those of the same task."""
    text: str
    """What the model wrote; empty if the episode ended before this step."""
    answer: ParsedAnswer
    scores: StepScores | None
    """None if the episode failed, so that there is nothing to judge."""

    def as_json(self) -> dict[str, Any]:
        """Return the record of the results file."""
        return {
            "row_id": self.step.row_id,
            "episode_id": self.step.episode_id,
            "step_index": self.step.step_index,
            "group": self.step.group,
            "task": self.step.task,
            "memory": self.memory,
            "sample": self.sample,
            "expected": action_json(self.step.action),
            "given": None if self.answer.action is None else action_json(self.answer.action),
            "unreadable": self.answer.unreadable,
            "summary": self.answer.summary,
            "scores": None if self.scores is None else dict(self.scores.values),
            "text": self.text,
        }


def action_json(action: Action) -> dict[str, Any]:
    """Return an action as plain data, with the keys that the model writes."""
    position = None if action.position is None else list(action.position)
    return {"action": action.name, "value": action.value, "position": position}


def answered(benchmark: Benchmark, groups: Sequence[Group]) -> Iterator[Answered]:
    """Yield the answers to all steps of the groups that are tasks of this benchmark, in order.

    A step that an episode did not reach has an empty answer. A trajectory that is repeated counts once.
    """
    seen: set[tuple[str, int]] = set()
    for group in groups:
        if not is_task_of(benchmark, group.task.fields.get("benchmark")):
            continue
        task = GuiTask.of(group.task)
        for one in group.trajectories:
            if (group.task.key, one.sibling) not in seen:
                seen.add((group.task.key, one.sibling))
                yield from _of_trajectory(benchmark, task, group.task.key, one)


def is_task_of(benchmark: Benchmark, name: object) -> bool:
    """Whether the field ``benchmark`` of a task names this one."""
    return name == benchmark.name


def _of_trajectory(benchmark: Benchmark, task: GuiTask, task_id: str, one: Trajectory) -> Iterator[Answered]:
    texts = answers(one, len(task.steps))
    parsed = [parse(text, benchmark.table) for text in texts]
    scores: Sequence[StepScores | None] = [None] * len(texts)
    if one.scorable:
        scores = benchmark.measure(parsed, task.steps)
    for step, text, answer, score in zip(task.steps, texts, parsed, scores, strict=True):
        yield Answered(
            step=step,
            memory=task.memory,
            task_id=task_id,
            sample=one.sibling,
            text=text,
            answer=answer,
            scores=score,
        )


__all__ = ["Answered", "action_json", "answered", "is_task_of"]
