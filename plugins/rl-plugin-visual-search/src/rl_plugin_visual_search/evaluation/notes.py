"""The notes on turns: the cell that each turn ran, where it zoomed in, and the verdict on the answer."""

from __future__ import annotations

import re

from rlcore.report import Cell, Mark, Picture, TurnNote
from rlcore.types import Task, ToolCall, Trajectory, Turn

from rl_plugin_visual_search.evaluation.results import is_question
from rl_plugin_visual_search.grammar import parse
from rl_plugin_visual_search.observations import ERROR, PICTURES, TEXT
from rl_plugin_visual_search.prompts import with_options
from rl_plugin_visual_search.zoom import NAME, BadRegion, corners

_TAG = re.compile(r"</?(?:tool_response|interpreter|image_clue_\d+)>")
_BEFORE_CODE = re.compile(r"(?:<code>\s*)?```(?:python|py)?\s*$", re.IGNORECASE)
LONGEST = 160
RIGHT = 1.0
"""Reward of a right answer, without a bonus."""


def turn_notes(task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """The notes of an episode, one for each turn of the policy; None for a task of another dataset."""
    if not is_question(task):
        return None
    notes: list[TurnNote | None] = []
    turns, before = trajectory.turns, None
    for place, turn in enumerate(turns):
        if turn.kind == "policy":
            after = turns[place + 1] if place + 1 < len(turns) else None
            last = all(later.kind != "policy" for later in turns[place + 1 :])
            asked = _seen(before) if notes else _question(task)
            notes.append(_note(task, trajectory, turn, after, asked=asked, last=last))
        before = turn
    return notes


def _note(
    task: Task, trajectory: Trajectory, turn: Turn, after: Turn | None, *, asked: str | None, last: bool
) -> TurnNote:
    message = turn.messages[-1]
    action = parse(message.text)
    lines: list[tuple[str, str]] = []
    cells: tuple[Cell, ...] = ()
    said: str | None = None
    if action.code is not None and after is not None:
        cells, said = (_cell(action.code, after),), _said(message.text, action.code)
    elif action.code is not None or message.tool_calls:
        does = "code" if action.code is not None else "zoom"
        lines.append((does, "not executed" if after is None else _outcome(after)))
    elif action.answer is None:
        lines.append(("problem", action.problem or "no answer"))
    right: bool | None = None
    if last:
        lines.append(("expected", _short(str(task.fields.get("answer", "")))))
        lines.append(("given", "no answer" if action.answer is None else _short(action.answer)))
        lines += _verdict(trajectory)
        right = None if trajectory.reward is None else trajectory.reward >= RIGHT
    regions = tuple(region for call in message.tool_calls if (region := _region(task, call)) is not None)
    return TurnNote(lines=tuple(lines), right=right, asked=asked, said=said, cells=cells, pictures=regions)


def _question(task: Task) -> str:
    return with_options(str(task.fields["question"]), [str(option) for option in task.fields.get("options") or ()])


def _seen(before: Turn | None) -> str | None:
    """The text that a tool returned, without the tags around it and around its pictures."""
    if before is None or before.kind == "policy" or not before.messages:
        return None
    return "\n".join(_lines(before.messages[-1].text)) or "(no text)"


def _lines(text: str) -> list[str]:
    """The lines of an observation that say something."""
    shown = (_TAG.sub("", line).rstrip() for line in text.splitlines())
    return [line for line in shown if line.strip() and line.strip() not in (TEXT, PICTURES)]


def _cell(code: str, after: Turn) -> Cell:
    """The code with the output, the error and the pictures of the observation after it."""
    output, _, error = after.messages[-1].text.partition(ERROR)
    pictures = tuple(Picture(image=name) for message in after.messages for name in message.images)
    return Cell(code=code, output="\n".join(_lines(output)), error="\n".join(_lines(error)).strip(), pictures=pictures)


def _said(text: str, code: str) -> str:
    """What a turn says before its code."""
    return _BEFORE_CODE.sub("", text.rpartition(code)[0]).strip()


def _region(task: Task, call: ToolCall) -> Picture | None:
    """The picture of the question that a call zooms in to, with the region; None for another picture or no region."""
    asked = call.arguments or {}
    number = asked.get("image", 0)
    shown = [name for message in task.messages for name in message.images]
    names, sizes = list(task.fields.get("pictures", shown)), list(task.fields.get("sizes", ()))
    if call.name != NAME or type(number) is not int or not 0 <= number < min(len(names), len(sizes)):
        return None
    width, height = (1000, 1000) if task.fields["coordinates"] == "thousandths" else sizes[number]
    try:
        left, top, right, bottom = corners(asked.get("bbox_2d"))
    except BadRegion:
        return None
    box = (left / width, top / height, right / width, bottom / height)
    mark = Mark(kind="given", box=box, label=_short(str(asked.get("label", ""))))
    return Picture(image=names[number], title=f"where it zooms in, picture {number}", marks=(mark,))


def _outcome(after: Turn) -> str:
    """What the observation after a call says: the error, or the number of its pictures."""
    pictures = sum(len(message.images) for message in after.messages)
    text = after.messages[-1].text
    shown = f"{pictures} picture{'s' * (pictures != 1)}"
    if ERROR in text:
        reason = _lines(text.partition(ERROR)[2])
        return f"failed: {_short(reason[-1])}" if reason else "failed"
    return f"ran, {shown}" if pictures else "ran"


def _verdict(trajectory: Trajectory) -> list[tuple[str, str]]:
    """The value of each reward, or why there is none."""
    if trajectory.failure is not None:
        return [("not scored", _short(str(trajectory.failure)))]
    return [
        (id, "no value" if result.value is None else f"{result.value:g}") for id, result in trajectory.rewards.items()
    ]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


__all__ = ["turn_notes"]
