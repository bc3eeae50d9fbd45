"""The page of a sheet: a header with the result, filters, and one card for each task."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from rlcore.atomic_files import told, write_whole
from rlcore.console.wording import counted
from rlcore.episodes.evaluation import summarise
from rlcore.sheets.answers import expected_answer, final_answer
from rlcore.sheets.conversation import NO_NOTE, messages, note_lines, text
from rlcore.sheets.header import Facts, header
from rlcore.sheets.notes import NotesOf, TurnNote, no_notes
from rlcore.sheets.pictures import Album
from rlcore.sheets.style import STYLE
from rlcore.types import Group, Message, Trajectory

MOST_TASKS = 60
MOST_TRAJECTORIES = 120
"""Limits of a page. Further tasks are counted, but not shown."""
LONGEST_ANSWER = 160
"""Limit of an answer in the first line of a trajectory, in characters."""
LEGEND = "A ring marks the expected place on an image, a cross that of the model's answer."
Verdict = Literal["right", "wrong", "unscored"]
LABELS: dict[Verdict, str] = {"right": "Right", "wrong": "Wrong", "unscored": "Not scored"}


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
    summary, album = summarise(groups, success=facts.success), Album()
    cards, shown = [], 0
    for number, group in enumerate(islice(groups, MOST_TASKS), start=1):
        if shown and shown + len(group.trajectories) > MOST_TRAJECTORIES:
            break
        cards.append(_card(number, group, facts.success, album, notes))
        shown += len(group.trajectories)
    left = summary.tasks - len(cards)
    lines = [f"{counted(left, 'task')} of {summary.tasks:,} left out to limit the size of this page"] if left else []
    lines += [note] if (note := album.note()) else []
    lines += [LEGEND] if album.marked else []
    counts = Counter(verdict(one, facts.success) for group in groups[: len(cards)] for one in group.trajectories)
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(STYLE)}'; base-uri 'none'; form-action 'none'"
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">',
            f"<title>{text(facts.title, 200)}</title><style>{STYLE}</style></head><body>\n",
            header(facts, groups, summary),
            _filters(counts),
            "".join(f'<p class="note">{line}</p>' for line in lines),
            f"<main>{''.join(cards)}</main>",
            '<p class="note none">No trajectory of this kind.</p></body></html>\n',
        ]
    )


def verdict(trajectory: Trajectory, success: float) -> Verdict:
    """Whether a trajectory is right, wrong or not scored."""
    if trajectory.reward is None:
        return "unscored"
    return "right" if trajectory.reward >= success else "wrong"


def _filters(counts: Counter[Verdict]) -> str:
    kinds = [("all", "All", counts.total()), *((kind, label, counts[kind]) for kind, label in LABELS.items())]
    return '<nav aria-label="Filter">{}</nav>\n'.format(
        "".join(
            f'<input type="radio" name="show" id="show-{kind}"{" checked" if kind == "all" else ""}>'
            f'<label class="{kind}" for="show-{kind}">{label} <span>{count:,}</span></label>'
            for kind, label, count in kinds
        )
    )


def _card(number: int, group: Group, success: float, album: Album, notes: NotesOf) -> str:
    """A task: its prompt once, and what each trajectory did."""
    prompts = {_prompt(one) for one in group.trajectories}
    shared = next(iter(prompts)) if len(prompts) == 1 else ()
    task, expected = group.task, expected_answer(group.task.fields)
    images = {sha256: data for one in group.trajectories for sha256, data in one.images.items()}
    noted = [_Turns(notes(group.task, one)) for one in group.trajectories]
    marks = tuple(dict.fromkeys(mark for each in noted for mark in each[0].marks))
    asked = next((each[0].asked for each in noted if each[0].asked), None)
    prompt = messages(shared, images, album, note=TurnNote(marks=marks, asked=asked))
    wanted = f'<p class="expected">Expected <b>{text(expected, 400)}</b></p>' if expected is not None else ""
    where = f" · {text(task.environment, 80)}" if task.environment else ""
    pairs = zip(group.trajectories, noted, strict=True)
    each = "".join(_episode(one, bool(shared), success, album, turns) for one, turns in pairs)
    title = f"<h2><span>{number}</span> {text(task.id, 120)}{where}</h2>"
    return f'<article>{title}<div class="task">{prompt}{wanted}</div><div class="episodes">{each}</div></article>\n'


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


def _episode(one: Trajectory, skips_prompt: bool, success: float, album: Album, notes: _Turns) -> str:
    kind = verdict(one, success)
    answer = final_answer(one)
    headline = notes.headline() or answer
    said = f"<b>{text(headline, LONGEST_ANSWER)}</b>" if headline else "<i>no answer</i>"
    facts = [] if one.reward is None else [f"reward {one.reward:.3g}"]
    facts += [str(one.stop), *([counted(one.sampled_tokens, "token")] if one.sampled_tokens else [])]
    head = f'<h3><span class="verdict">{LABELS[kind]}</span> {said}</h3><p class="facts">{", ".join(facts)}</p>'
    blocks, count = [""], 0
    for number, segment in enumerate(one.segments):
        if number:
            kept = counted(len(segment.context), "message")
            begins = f"Context rewritten to {kept}" if segment.context else f"Turn {count + 1}, in a new context"
            blocks.append(f'<p class="note">{begins}</p>')
        for place, turn in enumerate(segment.turns):
            if turn.kind == "policy":
                blocks[-1] += messages(turn.messages, one.images, album, answer=answer) + note_lines(notes[count])
                count += 1
            elif place or number or not skips_prompt:
                blocks += [""] if place and notes[count] is not NO_NOTE else []
                blocks[-1] += messages(turn.messages, one.images, album, answer=answer, note=notes[count])
    parts = (f'<div class="step">{block}</div>' for block in blocks if block)
    failure = f'<p class="text error">{text(str(one.failure), 2000)}</p>' if one.failure is not None else ""
    return f'<section class="{kind}">{head}{"".join(parts)}{failure}{_rewards(one)}</section>'


def _rewards(one: Trajectory) -> str:
    def cell(name: str, value: float | None, error: str | None = None) -> str:
        shown = f"{value:.3g}" if value is not None else text(error or "not scored", 200)
        return f"<li>{text(name, 80)} <b>{shown}</b></li>"

    rows = []
    for id, result in one.rewards.items():
        rows += [
            cell(id, result.value, result.error),
            *(cell(name, value) for name, value in result.components.items()),
        ]
    return f'<ul class="rewards">{"".join(rows)}</ul>' if rows else ""


def has_images(groups: Iterable[Group]) -> bool:
    """Whether a trajectory has an image."""
    return any(one.images for group in groups for one in group.trajectories)


def _hash(style: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}"


__all__ = ["Facts", "has_images", "sheet", "verdict", "write_sheet"]
