"""The notes on turns: the recorded and the given action as text, and their taps on the screenshot."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.report import Mark, TurnNote
from rlcore.types import Message, Task, Trajectory

from rlcore_gui.actions import Action
from rlcore_gui.answers import parse
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import Box, GuiStep
from rlcore_gui.tasks import GuiTask

LONGEST_VALUE = 80


def turn_notes(benchmark: Benchmark, task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """The notes of a trajectory, one for each answer; None for a task of another data set."""
    if task.fields.get("benchmark") != benchmark.name:
        return None
    shown = GuiTask.of(task)
    steps, asked = iter(shown.steps), ""
    notes: list[TurnNote | None] = []
    for turn in trajectory.turns:
        if turn.kind == "observation":
            asked = _without_instructions(turn.messages, shown.instructions)
        elif (step := next(steps, None)) is not None:
            notes.append(_note(benchmark, turn.messages[-1].text, step, asked))
    return notes


def action_text(action: Action) -> str:
    """An action as a short text, such as ``CLICK at 0.500, 0.250``."""
    value = f" {action.value[:LONGEST_VALUE]!r}" if action.value is not None else ""
    place = f" at {action.position[0]:.3f}, {action.position[1]:.3f}" if action.position is not None else ""
    return f"{action.name}{value}{place}"


def _without_instructions(messages: Sequence[Message], instructions: str) -> str:
    """The part of a prompt that is different in each step: the task and the memory."""
    text = messages[-1].text.strip() if messages else ""
    return text.removeprefix(instructions.strip()).strip()


def _note(benchmark: Benchmark, text: str, step: GuiStep, asked: str) -> TurnNote:
    answer = parse(text, benchmark.table)
    (scores,) = benchmark.measure([answer], [step])
    expected = action_text(step.action)
    given = f"unreadable: {answer.unreadable}" if answer.action is None else action_text(answer.action)
    marks = [Mark(kind="expected", point=step.action.position, box=box, label=expected) for box in _boxes(step)]
    if answer.action is not None and answer.action.position is not None:
        marks.append(Mark(kind="given", point=answer.action.position, label=given))
    right = scores.values.get(benchmark.right) == 1
    lines = [("expected", expected), ("given", given)]
    if right and benchmark.score(answer.action, step) < 1:
        lines.append(("match", "official, but not strict"))
    return TurnNote(marks=tuple(marks), lines=tuple(lines), right=right, asked=asked or None)


def _boxes(step: GuiStep) -> Sequence[tuple[float, float, float, float] | None]:
    """The boxes around the recorded position, as left, top, right and bottom; one None without such a box."""
    if step.action.position is None:
        return []
    x, y = step.action.position
    found = [_corners(box) for box in step.boxes]
    inside = [box for box in found if box[0] <= x <= box[2] and box[1] <= y <= box[3]]
    return sorted(inside, key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))[:1] or [None]


def _corners(box: Box) -> tuple[float, float, float, float]:
    top, left, height, width = box
    return left, top, left + width, top + height


__all__ = ["action_text", "turn_notes"]
