"""What plugins add to the turns of a page: marks on images, and lines below an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rlcore.types import Task, Trajectory
from rlcore.types.checking import is_finite

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry

HOOK = "rlcore_turn_notes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place on an image, such as where the model tapped, and where it should have.

    Coordinates are fractions of the width and height of the image, from its top left corner, so they are independent
    of its size.
    """

    kind: Literal["expected", "given"]
    """Whether it belongs to the expected answer or to that of the model."""
    point: tuple[float, float] | None = None
    """``(x, y)``."""
    box: tuple[float, float, float, float] | None = None
    """``(left, top, right, bottom)``."""
    label: str = ""
    """Shown when the pointer rests on the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNote:
    """What a page shows about one turn of the policy."""

    marks: tuple[Mark, ...] = ()
    """Drawn on the last image of the observation before the turn."""
    lines: tuple[tuple[str, str], ...] = ()
    """Names and values, such as ``("expected", "CLICK")``, shown below the answer."""
    right: bool | None = None
    """Whether the turn is right; None if it is not judged."""
    asked: str | None = None
    """What the observation before the turn asks, in short; its text is then folded. None shows it."""


NotesOf = Callable[[Task, Trajectory], Sequence[TurnNote | None]]
"""Returns one note, or None, for each turn of the policy, in order. Missing ones at the end are None."""


def notes_of_plugins(registry: Registry) -> NotesOf:
    """The notes that the first plugin with an answer gives. A plugin that fails is skipped and logged once."""

    def notes_of(task: Task, trajectory: Trajectory) -> Sequence[TurnNote | None]:
        return registry.plugins.claim(HOOK, _check, task=task, trajectory=trajectory) or ()

    return notes_of


def _check(notes: object) -> None:
    """Raise `TypeError` unless a plugin returned notes."""
    if not isinstance(notes, (list, tuple)):
        raise TypeError(f"it returned a {type(notes).__name__}, not a list of TurnNote")
    for note in notes:
        if note is None:
            continue
        if not isinstance(note, TurnNote):
            raise TypeError(f"it returned a {type(note).__name__} among the notes")
        texts = [text for line in note.lines for text in line]
        if not all(isinstance(text, str) for text in (*texts, note.asked or "")):
            raise TypeError("a line of a note is not two texts, or what was asked is not text")
        for mark in note.marks:
            numbers = (*(mark.point or ()), *(mark.box or ()))
            if len(numbers) not in (2, 4, 6) or not all(map(is_finite, numbers)) or not isinstance(mark.label, str):
                raise TypeError("a mark has no point and no box, or one that is not finite")


__all__ = ["Mark", "NotesOf", "TurnNote", "notes_of_plugins"]
