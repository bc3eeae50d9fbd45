"""Steps on drawn screens, with their pictures and a demonstrated answer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlcore_gui.actions import DECIMALS, Point
from rlcore_gui.answers import Answer
from rlcore_gui.dataset import LABEL
from rlcore_gui.drawn.pictures import picture
from rlcore_gui.drawn.screens import NAMES, REWARDED, SHOWN, SIDE, Screen, ScreenKind, center, draw_screen
from rlcore_gui.prepare.pseudo_labels import PROGRESS, REASONING, SUMMARY
from rlcore_gui.steps import GuiStep

Boxes = Literal["elements", "target", "none"]

DESCRIBE = "describe the screen"
"""The task whose answer is a description."""

Use = Literal["demonstrations", "training", "held-out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """An episode of one step on a drawn screen."""

    step: GuiStep
    """The step. The path of its image names no file."""
    image: bytes
    """The screen as a PNG."""
    answer: Answer
    """The demonstrated answer: for a target with a colour of `SHOWN` it is right, and else about a random element."""
    description: str
    """The answer to `DESCRIBE`, which tells where the colours of `SHOWN` are."""


def draw_steps(
    rng: random.Random,
    kinds: Sequence[ScreenKind],
    *,
    name: str,
    elements: tuple[int, int],
    use: Use,
    blank: bool = False,
    boxes: Boxes = "elements",
) -> Iterator[DrawnStep]:
    """Yield steps without end, each kind of screen equally often.

    Args:
        rng: source of all randomness
        kinds: the kinds of screens
        name: beginning of the ids
        elements: least and largest number of elements on a screen
        use: which colours targets have: those of `SHOWN` and `REWARDED`, those of `REWARDED`, or the one that is held
            out. The first two leave out the one that is held out.
        blank: leave the elements out of the pictures
        boxes: the boxes of a step: those of all elements, only that of its target, or none
    """
    number = 0
    while True:
        for kind in rng.sample(list(kinds), len(kinds)):
            screen = draw_screen(rng, kind, rng.randint(*elements), targets=_targets(kind, use))
            found = screen.target if screen.target.color in SHOWN else rng.choice(screen.elements)
            yield DrawnStep(
                step=_step(f"{name}-{number}", screen, boxes),
                image=picture(screen, rng, blank=blank),
                answer=answer(screen, found.cell),
                description=describe(rng, screen),
            )
            number += 1


def _targets(kind: ScreenKind, use: Use) -> Sequence[str]:
    if use == "held-out":
        return (kind.held_out,)
    rewarded = tuple(one for one in REWARDED if one != kind.held_out)
    return rewarded if use == "training" else (*SHOWN, *rewarded)


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


def describe(rng: random.Random, screen: Screen) -> str:
    """Return the colours of `SHOWN` in random order, each followed by its cell as in an answer, and its position.

    Everything but the colours can be predicted, so a tiny model learns to find a given colour, and where each cell is.
    """
    shown = [one for one in screen.elements if one.color in SHOWN]
    elements = rng.sample(shown, len(shown))
    return ", ".join(f"{one.color} {NAMES[one.cell]} {_written(center(one.cell))}" for one in elements)


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
