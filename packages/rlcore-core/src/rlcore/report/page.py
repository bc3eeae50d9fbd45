"""The page of a sheet: a header with the result, filters, and one card for each task."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlcore.atomic_files import told, write_whole
from rlcore.console.wording import counted
from rlcore.episodes.evaluation import Summary, summaries_of, summarise
from rlcore.report.answers import expected_answer, final_answer
from rlcore.report.conversation import NO_NOTE, Part, messages
from rlcore.report.notes import NotesOf, TurnNote, no_notes
from rlcore.report.pictures import Album
from rlcore.report.templates import source, template
from rlcore.types import Group, Message, Trajectory

MOST_TASKS = 60
MOST_TRAJECTORIES = 120
"""Limits of a page. Further tasks are counted, but not shown."""
LEGEND = "A ring marks the expected place on an image, a cross that of the model's answer."
Verdict = Literal["right", "wrong", "unscored"]
LABELS: dict[Verdict, str] = {"right": "Right", "wrong": "Wrong", "unscored": "Not scored"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the header says about the trajectories."""

    title: str
    """Such as ``Evaluation at step 10``."""
    rows: Sequence[tuple[str, str]] = ()
    """Names and values, such as the model and the recipe."""
    success: float = 1.0
    """A trajectory is right if its reward is at least this number."""


def write_sheet(path: Path, groups: Sequence[Group], facts: Facts, notes: NotesOf = no_notes) -> None:
    """Write a sheet atomically. Its folder is created.

    Args:
        path: of the page
        groups: of scored trajectories
        facts: for the header
        notes: what to add to each turn, such as `notes_of_plugins`

    Raises:
        UserError: the file cannot be written.
    """
    page = sheet(groups, facts, notes)
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)


def sheet(groups: Sequence[Group], facts: Facts, notes: NotesOf = no_notes) -> str:
    """The HTML of a sheet. Equal groups with equal notes give an equal page."""
    album = Album()
    cards: list[dict[str, Any]] = []
    shown = 0
    for group in groups[:MOST_TASKS]:
        if shown and shown + len(group.trajectories) > MOST_TRAJECTORIES:
            break
        cards.append(_card(group, facts.success, album, notes))
        shown += len(group.trajectories)
    left = len(groups) - len(cards)
    lines = [f"{counted(left, 'task')} of {len(groups):,} left out to limit the size of this page"] if left else []
    lines += [note] if (note := album.note()) else []
    lines += [LEGEND] if album.marked else []
    counts = Counter(episode["verdict"] for card in cards for episode in card["episodes"])
    style = source("style.css")
    return template("page.html").render(
        title=facts.title,
        style=style,
        style_hash=f"sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}",
        **_header(facts, groups),
        filters=[("all", "All", counts.total()), *((kind, label, counts[kind]) for kind, label in LABELS.items())],
        labels=LABELS,
        lines=lines,
        cards=cards,
    )


def _header(facts: Facts, groups: Sequence[Group]) -> dict[str, Any]:
    """The result.

    Each of several environments has its own accuracy and rewards: their tasks differ, so one number for all of them
    would depend on how many tasks each of them has.
    """
    parts = summaries_of(groups, success=facts.success)
    if len(parts) <= 1:
        parts = {"": summarise(groups, success=facts.success)}
    rows = [(name, value) for name, value in facts.rows if value]
    for name, part in parts.items():
        rows += [(f"{name}: {key}" if name else key, value) for key, value in _numbers(part)]
    return {"scores": list(parts.items()), "rows": rows}


def _numbers(summary: Summary) -> list[tuple[str, str]]:
    rows = [("mean reward", f"{summary.reward:.3f}")] if summary.reward is not None else []
    rows += [(id, f"{value:.3f}") for id, value in [*summary.rewards.items(), *summary.components.items()]]
    rows.append(("stopped by", ", ".join(f"{name} {count:,}" for name, count in summary.stops.items())))
    if summary.failures:
        rows.append(("failures", ", ".join(f"{name} {count:,}" for name, count in summary.failures.items())))
    return rows


def verdict(trajectory: Trajectory, success: float) -> Verdict:
    """Whether a trajectory is right, wrong or not scored."""
    if trajectory.reward is None:
        return "unscored"
    return "right" if trajectory.reward >= success else "wrong"


def _card(group: Group, success: float, album: Album, notes: NotesOf) -> dict[str, Any]:
    """A task: its prompt once, and what each trajectory did."""
    prompts = {_prompt(one) for one in group.trajectories}
    shared = next(iter(prompts)) if len(prompts) == 1 else ()
    images = {sha256: data for one in group.trajectories for sha256, data in one.images.items()}
    noted = [_Turns(notes(group.task, one)) for one in group.trajectories]
    marks = tuple(dict.fromkeys(mark for each in noted for mark in each[0].marks))
    asked = next((each[0].asked for each in noted if each[0].asked), None)
    return {
        "id": group.task.id,
        "environment": group.task.environment,
        "prompt": messages(shared, images, album, note=TurnNote(marks=marks, asked=asked)),
        "expected": expected_answer(group.task.fields),
        "episodes": [
            _episode(one, bool(shared), success, album, turns)
            for one, turns in zip(group.trajectories, noted, strict=True)
        ],
    }


def _prompt(trajectory: Trajectory) -> tuple[Message, ...]:
    first = trajectory.turns[:1]
    return first[0].messages if first and first[0].kind == "observation" else ()


class _Turns:
    """The notes of one trajectory by the index of the turn of the policy."""

    def __init__(self, notes: Sequence[TurnNote | None]) -> None:
        self._notes = notes

    def __getitem__(self, turn: int) -> TurnNote:
        return (self._notes[turn] if turn < len(self._notes) else None) or NO_NOTE

    def headline(self) -> str:
        """The answer of the only turn, or how many of several turns are right; empty without notes about that."""
        judged = [note.right for note in self._notes if note is not None and note.right is not None]
        if len(judged) > 1:
            return f"{sum(judged)} of {len(judged)} turns right"
        return (self[0].answer or "") if len(self._notes) == 1 else ""


def _episode(one: Trajectory, skips_prompt: bool, success: float, album: Album, notes: _Turns) -> dict[str, Any]:
    answer = final_answer(one)
    facts = [] if one.reward is None else [f"reward {one.reward:.3g}"]
    facts += [str(one.stop), *([counted(one.sampled_tokens, "token")] if one.sampled_tokens else [])]
    return {
        "verdict": verdict(one, success),
        "headline": notes.headline() or answer,
        "facts": facts,
        "steps": _steps(one, skips_prompt, album, notes, answer),
        "failure": str(one.failure) if one.failure is not None else None,
        "rewards": _rewards(one),
    }


def _steps(one: Trajectory, skips_prompt: bool, album: Album, notes: _Turns, answer: str) -> list[list[Part]]:
    """What happened, in steps of an observation and the answer to it where turns have notes."""
    steps, count = [list[Part]()], 0
    for number, segment in enumerate(one.segments):
        if number:
            kept = counted(len(segment.context), "message")
            begins = f"Context rewritten to {kept}" if segment.context else f"Turn {count + 1}, in a new context"
            steps.append([("note", begins)])
        for place, turn in enumerate(segment.turns):
            note = notes[count]
            if turn.kind == "policy":
                said = messages(turn.messages, one.images, album, answer=answer)
                steps[-1] += [("message", each) for each in said] + ([("turn", note)] if note.lines else [])
                count += 1
            elif place or number or not skips_prompt:
                steps += [[]] if place and note is not NO_NOTE else []
                said = messages(turn.messages, one.images, album, answer=answer, note=note)
                steps[-1] += [("message", each) for each in said]
    return [step for step in steps if step]


def _rewards(one: Trajectory) -> list[tuple[str, str]]:
    rows = []
    for id, result in one.rewards.items():
        rows.append((id, f"{result.value:.3g}" if result.value is not None else result.error or "not scored"))
        rows += [
            (name, f"{value:.3g}" if value is not None else "not scored") for name, value in result.components.items()
        ]
    return rows


def has_images(groups: Iterable[Group]) -> bool:
    """Whether a trajectory has an image."""
    return any(one.images for group in groups for one in group.trajectories)


__all__ = ["Facts", "has_images", "sheet", "verdict", "write_sheet"]
