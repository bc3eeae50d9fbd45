"""What plugins say about the turns of a page: marks, lines, tables, pictures, films and cells of code, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
class Picture:
    """An image with marks."""

    image: str | bytes
    """The content hash of an image of the trajectory, or an encoded image, such as a PNG file."""
    title: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """A video that the run wrote."""

    file: str
    """Its path in the run directory, such as ``videos/000010-7.mp4``: an MP4 or WebM file. A film whose file does not
    exist is left out, so a plugin can name files that only some episodes have."""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts and numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    """Each has one value for each column."""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Code that the turn ran, with what it gave."""

    code: str
    output: str = ""
    error: str = ""
    """Why it failed; empty if it did not."""
    pictures: tuple[Picture, ...] = ()


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
    said: str | None = None
    """What the turn says besides its cells, in short; its text is then folded. None shows it."""
    cells: tuple[Cell, ...] = ()
    """Shown in place of the observation after the turn, which is then folded."""
    pictures: tuple[Picture, ...] = ()
    films: tuple[Film, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def made(self) -> list[bytes]:
        """The encoded images of its cells and of itself, in the order of a page."""
        shown = [*(picture for cell in self.cells for picture in cell.pictures), *self.pictures]
        return [picture.image for picture in shown if isinstance(picture.image, bytes)]


__all__ = ["Cell", "Film", "Mark", "Picture", "Table", "TurnNote"]
