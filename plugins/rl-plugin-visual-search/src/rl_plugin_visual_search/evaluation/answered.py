"""The episodes of an evaluation, each with its question, its answer and its use of tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlcore.types import Group, Task, Trajectory

from rl_plugin_visual_search.grammar import parse

OTHER = "other"
"""The type of a question without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An episode about one question."""

    task_id: str
    sample: int
    """Index of the episode among those of the same question."""
    category: str
    data_source: str
    question: str
    expected: str
    given: str | None
    """The last boxed answer; None without one."""
    reward: float | None
    """None if the episode is not scored."""
    right: bool | None
    """Whether the reward reaches ``evaluation.success``; None if the episode is not scored."""
    turns: int
    calls: int
    """Executed blocks of code, or calls of the zoom tool."""
    errors: int
    """Calls that failed or ran into the time limit."""
    pictures: int
    """Pictures that tools have shown."""
    stop: str

    def as_json(self) -> dict[str, Any]:
        """Return the record of the results file."""
        return asdict(self)


def is_question(task: Task) -> bool:
    """Whether a task is of this plugin's dataset."""
    return "question" in task.fields and "coordinates" in task.fields


def answered(groups: Sequence[Group], *, success: float) -> Iterator[Answered]:
    """Yield the episodes of the groups about questions, in order. An episode that is repeated counts once.

    Args:
        groups: scored groups, of which those of other datasets are left out
        success: minimum reward of a right answer
    """
    seen: set[tuple[str, int]] = set()
    for group in groups:
        if not is_question(group.task):
            continue
        for one in group.trajectories:
            if (group.task.key, one.sibling) not in seen:
                seen.add((group.task.key, one.sibling))
                yield _of(group.task, one, success)


def _of(task: Task, one: Trajectory, success: float) -> Answered:
    fields, counts = task.fields, one.metrics
    return Answered(
        task_id=task.key,
        sample=one.sibling,
        category=str(fields.get("category") or fields.get("data_source") or OTHER),
        data_source=str(fields.get("data_source") or ""),
        question=str(fields["question"]),
        expected=str(fields.get("answer", "")),
        given=parse(one.final_response).answer,
        reward=one.reward,
        right=None if one.reward is None else one.reward >= success,
        turns=sum(turn.kind == "policy" for turn in one.turns),
        calls=int(counts.get("tool_calls", 0)),
        errors=int(counts.get("tool_errors", 0) + counts.get("tool_timeouts", 0)),
        pictures=int(counts.get("tool_images", 0)),
        stop=str(one.stop),
    )


__all__ = ["OTHER", "Answered", "answered", "is_question"]
