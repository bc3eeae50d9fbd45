"""The pictures of scenes."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING

from rl_plugin_visual_search.drawn.marks import CLEAR, GROUND, mark_image
from rl_plugin_visual_search.drawn.scenes import BAND, CELL, CELLS, COLORS, FRAME, SIDE, SIGN, Scene

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

LINES = 12
"""Number of thin lines behind the signs."""
LINE_GREYS = (111, 143)
TICK = 255
PALETTE = [value for grey in range(256) for value in (grey, grey, grey)]
"""Indices are grey values, except for those of the colours. Pictures with a palette are encoded in a fifth of the
time."""
FIRST_COLOR = 1
PALETTE[3 * FIRST_COLOR : 3 * (FIRST_COLOR + len(COLORS))] = [value for rgb in COLORS.values() for value in rgb]


def picture(scene: Scene, rng: random.Random, *, blank: bool = False) -> Image.Image:
    """Return the picture of a scene, which has a palette.

    Args:
        scene: the scene
        rng: source of the details that do not matter
        blank: leave out the signs
    """
    from PIL import Image, ImageDraw

    image = Image.new("L", (SIDE, SIDE), GROUND)
    canvas = ImageDraw.Draw(image)
    for _ in range(LINES):
        canvas.line([rng.randrange(SIDE) for _ in range(4)], fill=rng.choice(LINE_GREYS), width=2)
    _rulers(canvas)
    names = list(COLORS)
    for sign in () if blank else (*scene.others, scene.target):
        fill = sign.fill if isinstance(sign.fill, int) else FIRST_COLOR + names.index(sign.fill)
        for inset, value in ((0, fill), (FRAME, GROUND)):
            left, top, last = sign.left + inset, sign.top + inset, SIGN - 2 * inset - 1
            canvas.rectangle((left, top, left + last, top + last), fill=value)
        image.paste(mark_image(sign.mark), (sign.left + FRAME + CLEAR, sign.top + FRAME + CLEAR))
    image.putpalette(PALETTE)
    return image


def _rulers(canvas: ImageDraw.ImageDraw) -> None:
    """Show at the upper and left edge of each cell in which column and row it is, by the place of a white tick."""
    tick = CELL // CELLS
    for column in range(CELLS):
        for row in range(CELLS):
            left, top = column * CELL, row * CELL
            x, y = left + column * tick, top + row * tick
            canvas.rectangle((x, top, x + tick - 1, top + BAND - 1), fill=TICK)
            canvas.rectangle((left, y, left + BAND - 1, y + tick - 1), fill=TICK)


def reduced(image: Image.Image) -> Image.Image:
    """Return a picture as the model of the default recipe sees it."""
    from PIL.Image import Resampling

    return image.convert("RGB").resize((CELL, CELL), Resampling.BICUBIC)


def encoded(image: Image.Image) -> bytes:
    """Return a picture as PNG."""
    written = io.BytesIO()
    image.save(written, format="PNG", compress_level=1)
    return written.getvalue()


__all__ = ["encoded", "picture", "reduced"]
