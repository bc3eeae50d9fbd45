"""Drawn screens: coloured elements in the cells of a grid.

A screen has at most one element of each colour, so that "the red app" is unambiguous. Every element covers the centre
of its cell, where demonstrations tap. The centres of two cells are further apart than AITW's matching tolerates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcore_gui.actions import Action, Point
from rlcore_gui.steps import Box

if TYPE_CHECKING:
    from PIL import ImageDraw

SIDE = 112
"""Width and height of a screen in pixels."""
CELLS = 2
"""Cells along a side of the grid. A tiny model learns to find elements in few large cells soon."""
CELL = SIDE // CELLS
"""Width and height of a cell in pixels, which is two visual tokens of Qwen-VL models."""
MARGIN = 2
"""Least distance in pixels between the centre of a cell and the edge of its element."""
NAMES = "ABCD"
"""The names of the cells, row by row."""
COLORS = {
    "red": (230, 20, 20),
    "green": (20, 190, 20),
    "blue": (30, 30, 240),
    "yellow": (240, 230, 0),
    "pink": (255, 0, 220),
    "cyan": (0, 230, 240),
}
"""RGB values of the colours, as far apart as possible."""
SHOWN = ("red", "green", "blue")
"""The colours whose elements demonstrations show."""
REWARDED = ("yellow", "pink", "cyan")
"""The colours of targets in training. No demonstration tells where they are, so only the reward can."""
Paint = Callable[["ImageDraw.ImageDraw", tuple[int, int, int, int], str, random.Random], None]
"""Paints an element: the canvas, its left, top, right and bottom pixel, its RGB value as text, and a random source for
details that do not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenKind:
    """A kind of screen: what its elements look like, and what a user wants of one."""

    name: str
    """A word, such as ``home``."""
    held_out: str
    """The colour of `REWARDED` that targets of this kind only have on held-out screens. The kinds of a plugin differ in
    it, so that training has targets of all colours."""
    instruction: str
    """The task, with ``{color}`` and, if `values` has any, ``{value}``."""
    action: str
    """Name of the action on the target."""
    summary: str
    """What the action did, with ``{color}``."""
    values: tuple[str, ...] = ()
    """What the task names besides the colour, usually the value of the action."""
    takes_value: bool = True
    """Whether the action has the value that the task names."""
    size: tuple[int, int]
    """Width and height of an element in pixels: at least a quarter of a cell, and less than a cell."""
    paint: Paint


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A coloured element of a screen."""

    color: str
    cell: int
    """From 0, row by row."""
    left: int
    top: int
    width: int
    height: int
    """Place and size in pixels."""

    @property
    def box(self) -> Box:
        """The element, relative to the screen."""
        return self.top / SIDE, self.left / SIDE, self.height / SIDE, self.width / SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A screen and what to do on it."""

    kind: ScreenKind
    elements: tuple[Element, ...]
    """In the order of their cells."""
    target: Element
    value: str | None
    """The value that the task names; None if it names none."""

    @property
    def instruction(self) -> str:
        """The task."""
        return self.kind.instruction.format(color=self.target.color, value=self.value)

    def action_at(self, position: Point) -> Action:
        """The action of the task at any position."""
        value = self.value if self.kind.takes_value else None
        return Action(name=self.kind.action, value=value, position=position)


def center(cell: int) -> Point:
    """The centre of a cell, relative to the screen. It lies on the element of the cell, if it has one."""
    return (cell % CELLS + 0.5) / CELLS, (cell // CELLS + 0.5) / CELLS


def draw_screen(rng: random.Random, kind: ScreenKind, elements: int, *, targets: Sequence[str]) -> Screen:
    """Draw a screen of a kind.

    Args:
        rng: source of all randomness
        kind: the kind of screen
        elements: number of elements, at most that of the cells
        targets: colours from which that of the target is chosen

    As many of the others as possible have colours of the same set as the target, `SHOWN` or `REWARDED`. Otherwise an
    agent that only tells the sets apart would often be right. They may have ``kind.held_out``: among two colours, an
    agent would find the target by elimination, without knowing what it looks like.
    """
    color = rng.choice(targets)
    others = [one for one in rng.sample(list(COLORS), len(COLORS)) if one != color]
    others.sort(key=lambda one: (one in SHOWN) is not (color in SHOWN))
    colors = [color, *others[: elements - 1]]
    cells = rng.sample(range(CELLS * CELLS), elements)
    made = tuple(_element(rng, kind, color, cell) for color, cell in zip(colors, cells, strict=True))
    value = rng.choice(kind.values) if kind.values else None
    return Screen(kind=kind, elements=tuple(sorted(made, key=lambda one: one.cell)), target=made[0], value=value)


def _element(rng: random.Random, kind: ScreenKind, color: str, cell: int) -> Element:
    width, height = kind.size
    left, top = cell % CELLS * CELL + _offset(rng, width), cell // CELLS * CELL + _offset(rng, height)
    return Element(color=color, cell=cell, left=left, top=top, width=width, height=height)


def _offset(rng: random.Random, size: int) -> int:
    """A random offset in a cell at which an element of this size covers the centre and does not leave the cell."""
    center = CELL // 2
    return rng.randint(max(0, center + MARGIN - size), min(CELL - size, center - MARGIN))
