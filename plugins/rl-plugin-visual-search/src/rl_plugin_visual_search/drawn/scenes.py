"""Scenes: one coloured sign among grey ones, each in a cell of a grid and with a mark."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rl_plugin_visual_search.drawn.marks import CLEAR, MARK, ROWS

CELLS = 4
"""Cells along a side of the grid."""
CELL = 112
"""Width and height of a cell in pixels."""
SIDE = CELLS * CELL
"""Width and height of a picture in pixels."""
FRAME = 12
"""Width of the frame of a sign in pixels."""
SIGN = MARK + 2 * (CLEAR + FRAME)
"""Width and height of a sign in pixels."""
BAND = 8
"""Width in pixels of the ruler at the upper and left edge of a cell, which no sign covers."""
STEP = 4
"""Signs are at multiples of this number of pixels."""
COLORS = {
    "red": (230, 20, 20),
    "green": (20, 190, 20),
    "blue": (30, 30, 240),
    "yellow": (240, 230, 0),
    "pink": (255, 0, 220),
    "cyan": (0, 230, 240),
}
"""RGB values of the colours of the target, as far from grey as possible."""
GREYS = (95, 111, 143, 159)
"""Grey values of the other signs."""
FEWEST, MOST = 4, 9
"""Least and largest number of grey signs."""
Box = tuple[int, int, int, int]
"""Left, upper, right and lower pixel, as `PIL.Image.Image.crop` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A framed mark."""

    mark: str
    """A name of `ROWS`."""
    fill: str | int
    """Name of the colour of the frame, or its grey value."""
    cell: int
    """From 0, row by row."""
    left: int
    top: int
    """Place in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A picture before it is drawn."""

    target: Sign
    """The only coloured sign."""
    others: tuple[Sign, ...]


def draw_scene(rng: random.Random, *, held_out: bool) -> Scene:
    """Draw a scene. Held-out scenes have signs at pixels where training has none."""
    cells = rng.sample(range(CELLS**2), 1 + rng.randint(FEWEST, MOST))
    target = _sign(rng, rng.choice(list(COLORS)), cells[0], held_out=held_out)
    others = (_sign(rng, rng.choice(GREYS), cell, held_out=held_out) for cell in cells[1:])
    return Scene(target=target, others=tuple(others))


def cell_box(cell: int) -> Box:
    """Return the box of a cell."""
    left, top = cell % CELLS * CELL, cell // CELLS * CELL
    return left, top, left + CELL, top + CELL


def _sign(rng: random.Random, fill: str | int, cell: int, *, held_out: bool) -> Sign:
    """Place a sign inside of its cell. One place in four is held out."""
    while True:
        x, y = (rng.randint(BAND // STEP, (CELL - SIGN) // STEP) for _ in range(2))
        if ((x + 2 * y) % 4 == 0) is held_out:
            left, top, _, _ = cell_box(cell)
            mark = rng.choice(list(ROWS))
            return Sign(mark=mark, fill=fill, cell=cell, left=left + x * STEP, top=top + y * STEP)


__all__ = ["CELL", "CELLS", "COLORS", "SIDE", "Box", "Scene", "Sign", "cell_box", "draw_scene"]
