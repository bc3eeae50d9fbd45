"""The notes that plugins give on the turns of a trajectory, checked so that a page can show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlcore.report.notes import Cell, Film, Mark, Picture, Table, TurnNote
from rlcore.types import Task, Trajectory
from rlcore.types.checking import is_finite

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry

HOOK = "rlcore_turn_notes"
MOST_ROWS = 1_000
"""Rows of a table."""
MOST_COLUMNS = 50
MOST_PICTURES = 200
"""Pictures and films in the notes on a trajectory."""
MOST_BYTES = 16_000_000
"""Encoded images in the notes on a trajectory."""
MOST_CHARACTERS = 2_000_000
"""Texts in the notes on a trajectory."""
_HASH = re.compile("[0-9a-f]{64}")
_VIDEO = re.compile(r"(?:[\w][\w.+-]*/){0,4}[\w][\w.+-]*\.(?:mp4|webm)", re.ASCII)


class Notes(NamedTuple):
    """The notes on a trajectory."""

    turns: Sequence[TurnNote | None] = ()
    """One note, or None, for each turn of the policy, in order. Missing ones at the end are None."""
    problem: str = ""
    """Which plugins failed, and how."""


NotesOf = Callable[[Task, Trajectory, int], Notes]
"""Returns the notes on a trajectory of a step."""


def notes_of_plugins(registry: Registry) -> NotesOf:
    """The notes that the first plugin with an answer gives. A plugin that fails is skipped, and named as a problem."""

    def notes_of(task: Task, trajectory: Trajectory, step: int) -> Notes:
        problems: list[str] = []
        arguments = {"task": task, "trajectory": trajectory, "step": step}
        found = registry.plugins.claim(HOOK, _check, failed=problems.append, **arguments)
        return Notes(found or (), "\n".join(problems))

    return notes_of


def _check(notes: object) -> None:
    """Raise `TypeError` or `ValueError` unless a plugin returned notes that a page can show."""
    if not isinstance(notes, (list, tuple)):
        raise TypeError(f"it returned a {type(notes).__name__}, not a list of TurnNote")
    found = [note for note in notes if note is not None]
    for note in found:
        _typed(note, TurnNote, "the notes")
    _bounded("characters", sum(len(text) for note in found for text in _texts(note)), MOST_CHARACTERS)
    _bounded("pictures and films", sum(len(_pictures(note)) + len(note.films) for note in found), MOST_PICTURES)
    _bounded("bytes of images", sum(len(image) for note in found for image in note.made), MOST_BYTES)
    for note in found:
        _check_note(note)


def _texts(note: TurnNote) -> Iterator[str]:
    """All texts of a note. Raises `TypeError` for what is no text."""
    given: list[object] = [text for line in note.lines for text in line]
    given += [text for text in (note.asked, note.said) if text is not None]
    for table in note.tables:
        _typed(table, Table, "tables")
        _bounded("columns", len(table.columns), MOST_COLUMNS)
        _bounded("rows", len(table.rows), MOST_ROWS)
        values = [value for row in table.rows for value in row]
        given += [table.title, *table.columns, *(value for value in values if not is_finite(value))]
    for cell in note.cells:
        _typed(cell, Cell, "cells")
        given += [cell.code, cell.output, cell.error]
    for film in note.films:
        _typed(film, Film, "films")
        given += [film.title, film.file]
    for picture in _pictures(note):
        _typed(picture, Picture, "pictures")
        given += [picture.title, *(mark.label for mark in picture.marks)]
    for text in (*given, *(mark.label for mark in note.marks)):
        if not isinstance(text, str):
            raise TypeError(f"a note has a {type(text).__name__} where it needs text, or a finite number in a table")
        yield text


def _check_note(note: TurnNote) -> None:
    if not all(len(line) == 2 for line in note.lines):
        raise TypeError("a line of a note is not two texts")
    for table in note.tables:
        if any(len(row) != len(table.columns) for row in table.rows):
            raise ValueError(f"a row of a table does not have one value for each of its {len(table.columns)} columns")
    for film in note.films:
        if not _VIDEO.fullmatch(film.file):
            raise ValueError(f"a film is no MP4 or WebM file in the run directory: {film.file[:80]!r}")
    for picture in _pictures(note):
        if not isinstance(picture.image, bytes) and not (
            isinstance(picture.image, str) and _HASH.fullmatch(picture.image)
        ):
            raise TypeError("the image of a picture is neither bytes nor the content hash of an image")
        _check_marks(picture.marks)
    _check_marks(note.marks)


def _check_marks(marks: Iterable[Mark]) -> None:
    for mark in marks:
        numbers = (*(mark.point or ()), *(mark.box or ()))
        if len(numbers) not in (2, 4, 6) or not all(map(is_finite, numbers)):
            raise TypeError("a mark has no point and no box, or one that is not finite")


def _pictures(note: TurnNote) -> list[Picture]:
    return [*(picture for cell in note.cells for picture in cell.pictures), *note.pictures]


def _typed(value: object, expected: type, where: str) -> None:
    if not isinstance(value, expected):
        raise TypeError(f"it returned a {type(value).__name__} among {where}, not a {expected.__name__}")


def _bounded(what: str, found: int, most: int) -> None:
    if found > most:
        raise ValueError(f"the notes have {found:,} {what}; a page shows at most {most:,}")


__all__ = ["Notes", "NotesOf", "notes_of_plugins"]
