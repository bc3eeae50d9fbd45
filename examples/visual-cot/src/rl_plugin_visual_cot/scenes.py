"""Scenes of coloured shapes, and their pictures.

A picture has four quadrants with at most one object each. Colours and shapes do not repeat within a scene, so that
"the circle" and "the red object" are unambiguous.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import Literal

SIDE = 112
"""Width and height of a picture in pixels."""
BACKGROUND = (127, 127, 127)
COLORS = {
    "red": (230, 20, 20),
    "green": (20, 190, 20),
    "blue": (30, 30, 240),
    "yellow": (240, 230, 0),
    "pink": (255, 0, 220),
    "cyan": (0, 230, 240),
}
"""RGB values of the colours."""
SHAPES = ("circle", "square", "triangle", "cross")
PLACES = ("top left", "top right", "bottom left", "bottom right")
"""The quadrants."""
SMALLEST, LARGEST = 42, 48
"""Side of an object in pixels."""
MARGIN = 2
"""Distance in pixels between an object and the edge of its quadrant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """One object of a scene."""

    shape: str
    color: str
    place: str
    x: int
    """Left edge in pixels."""
    y: int
    """Upper edge in pixels."""
    size: int
    """Width and height in pixels."""


Scene = tuple[Thing, ...]
"""Objects in the order of `PLACES`."""


def draw_scene(rng: random.Random, count: int, *, held_out: bool) -> Scene:
    """Draw a scene with ``count`` objects. Held-out scenes have objects at pixels where training has none."""
    colors = rng.sample(list(COLORS), count)
    shapes = rng.sample(SHAPES, count)
    places = sorted(rng.sample(range(len(PLACES)), count))
    return tuple(
        _placed(rng, color, shape, place, held_out=held_out)
        for color, shape, place in zip(colors, shapes, places, strict=True)
    )


def _placed(rng: random.Random, color: str, shape: str, place: int, *, held_out: bool) -> Thing:
    """Place an object in its quadrant. One position in four is held out."""
    while True:
        size = rng.randint(SMALLEST, LARGEST)
        room = SIDE // 2 - 2 * MARGIN - size
        x = place % 2 * SIDE // 2 + MARGIN + rng.randint(0, room)
        y = place // 2 * SIDE // 2 + MARGIN + rng.randint(0, room)
        if ((x + 2 * y) % 4 == 0) is held_out:
            return Thing(shape=shape, color=color, place=PLACES[place], x=x, y=y, size=size)


def picture(scene: Scene, form: Literal["PNG", "JPEG"] = "PNG") -> bytes:
    """Return a scene as an encoded picture of `SIDE` x `SIDE` pixels. An empty scene is an empty picture."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (SIDE, SIDE), BACKGROUND)
    canvas = ImageDraw.Draw(image)
    for thing in scene:
        left, top, end = thing.x, thing.y, thing.size - 1
        box = (left, top, left + end, top + end)
        fill = COLORS[thing.color]
        if thing.shape == "circle":
            canvas.ellipse(box, fill=fill)
        elif thing.shape == "square":
            canvas.rectangle(box, fill=fill)
        elif thing.shape == "triangle":
            canvas.polygon(((left + end / 2, top), (left + end, top + end), (left, top + end)), fill=fill)
        else:
            third = thing.size // 3
            canvas.rectangle((left + third, top, left + end - third, top + end), fill=fill)
            canvas.rectangle((left, top + third, left + end, top + end - third), fill=fill)
    written = io.BytesIO()
    if form == "PNG":
        image.save(written, format="PNG", compress_level=1)
    else:
        image.save(written, format="JPEG", quality=95, subsampling=0)
    return written.getvalue()
