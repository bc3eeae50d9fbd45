"""Steps on drawn screens, with their pictures and a demonstrated answer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlcore_gui.actions import DECIMALS, Point
from rlcore_gui.answers import Answer
from rlcore_gui.dataset import LABEL
from rlcore_gui.drawn.pictures import picture
from rlcore_gui.drawn.screens import CELLS, COLORS, NAMES, SIDE, Screen, ScreenKind, center, draw_screen
from rlcore_gui.prepare.pseudo_labels import PROGRESS, REASONING, SUMMARY
from rlcore_gui.steps import GuiStep

Boxes = Literal["elements", "target", "none"]

COLORS_TASK, PLACES_TASK, PRESENCE_TASK = "name the colors", "name the places", "look for {color}"
"""The tasks whose answers are descriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """An episode of one step on a drawn screen."""

    step: GuiStep
    """The step. The path of its image names no file."""
    image: bytes
    """The screen as a PNG."""
    guess: Answer
    """An answer that acts in a random cell, whether or not the target is there."""
    descriptions: Mapping[str, str]
    """The answers to `COLORS_TASK`, `PLACES_TASK` and `PRESENCE_TASK`. They do not tell which colour is where."""


def draw_steps(
    rng: random.Random,
    kinds: Sequence[ScreenKind],
    *,
    name: str,
    elements: tuple[int, int],
    held_out: bool,
    blank: bool = False,
    boxes: Boxes = "elements",
) -> Iterator[DrawnStep]:
    """Yield steps without end, each kind of screen equally often.

    Args:
        rng: source of all randomness
        kinds: the kinds of screens
        name: beginning of the ids
        elements: least and largest number of elements on a screen
        held_out: whether to draw held-out screens; see `draw_screen`
        blank: leave the elements out of the pictures
        boxes: the boxes of a step: those of all elements, only that of its target, or none
    """
    number = 0
    while True:
        for kind in rng.sample(list(kinds), len(kinds)):
            screen = draw_screen(rng, kind, rng.randint(*elements), held_out=held_out)
            yield DrawnStep(
                step=_step(f"{name}-{number}", screen, boxes),
                image=picture(screen, rng, blank=blank),
                guess=answer(screen, rng.randrange(CELLS * CELLS)),
                descriptions=describe(rng, screen),
            )
            number += 1


def answer(screen: Screen, cell: int) -> Answer:
    """Return the answer that names a cell as that of the target, and acts at its centre.

    Its reasoning repeats the colour directly before the name of the cell, which a tiny model learns much sooner than
    coordinates alone.
    """
    color = screen.target.color
    return Answer(
        progress="Start.",
        reasoning=f"Find {color} {NAMES[cell]}.",
        action=screen.action_at(center(cell)),
        summary=screen.kind.summary.format(color=color),
    )


def describe(rng: random.Random, screen: Screen) -> dict[str, str]:
    """Return the colours of all elements, their cells with positions, and whether a colour occurs, by task.

    From these answers, a tiny model learns to recognise a colour and a place, but not which colour is where. Colours
    are in random order, and half of those that are looked for are chosen among the elements.
    """
    colors = rng.sample([one.color for one in screen.elements], len(screen.elements))
    places = [f"{NAMES[one.cell]} {_written(center(one.cell))}" for one in screen.elements]
    wanted = rng.choice(rng.choice((colors, list(COLORS))))
    return {
        COLORS_TASK: ", ".join(colors),
        PLACES_TASK: ", ".join(places),
        PRESENCE_TASK.format(color=wanted): f"Find {wanted} {'yes' if wanted in colors else 'no'}.",
    }


def _written(position: Point) -> str:
    x, y = position
    return f"[{x:.{DECIMALS}f}, {y:.{DECIMALS}f}]"


def _step(name: str, screen: Screen, boxes: Boxes) -> GuiStep:
    place = list(center(screen.target.cell))
    shown = {"elements": screen.elements, "target": (screen.target,), "none": ()}[boxes]
    right = answer(screen, screen.target.cell)
    label = {PROGRESS: right.progress, REASONING: right.reasoning, SUMMARY: right.summary}
    return GuiStep(
        row_id=name,
        episode_id=name,
        step_index=0,
        group=screen.kind.name,
        task=screen.instruction,
        image=Path(f"{name}.png"),
        image_size=(SIDE, SIDE),
        action=right.action,
        boxes=tuple(one.box for one in shown),
        memory=None,
        is_first=True,
        is_last=True,
        source={"touch": place, "lift": place, LABEL: label},
    )
