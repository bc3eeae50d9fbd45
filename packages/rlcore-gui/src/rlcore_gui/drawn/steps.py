"""Steps on drawn screens, with their pictures and a demonstrated answer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlcore_gui.answers import Answer
from rlcore_gui.dataset import LABEL
from rlcore_gui.drawn.pictures import picture
from rlcore_gui.drawn.screens import SIDE, Element, Screen, ScreenKind, draw_screen
from rlcore_gui.pseudo_labels import PROGRESS, REASONING, SUMMARY
from rlcore_gui.steps import GuiStep


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """An episode of one step on a drawn screen."""

    step: GuiStep
    """The step. The path of its image names no file."""
    image: bytes
    """The screen as a PNG."""
    answer: Answer
    """The demonstrated answer. Its action is that of the step, unless it is a guess."""


def draw_steps(
    rng: random.Random,
    kinds: Sequence[ScreenKind],
    *,
    name: str,
    elements: tuple[int, int],
    held_out: bool,
    guesses: float = 0.0,
    blank: bool = False,
    target_box_only: bool = False,
) -> Iterator[DrawnStep]:
    """Yield steps without end, each kind of screen equally often.

    Args:
        rng: source of all randomness
        kinds: the kinds of screens
        name: beginning of the ids
        elements: least and largest number of elements on a screen
        held_out: whether to use the screens that do not occur in training
        guesses: fraction of the answers that act on a random element of the screen
        blank: leave the elements out of the pictures
        target_box_only: whether a step has the box of its target instead of those of all elements
    """
    number = 0
    while True:
        for kind in rng.sample(list(kinds), len(kinds)):
            screen = draw_screen(rng, kind, rng.randint(*elements), held_out=held_out)
            chosen = rng.choice(screen.elements) if rng.random() < guesses else screen.target
            yield DrawnStep(
                step=_step(f"{name}-{number}", screen, target_box_only),
                image=picture(screen, rng, blank=blank),
                answer=answer(screen, chosen),
            )
            number += 1


def answer(screen: Screen, chosen: Element) -> Answer:
    """Return the answer that acts on an element.

    Its reasoning repeats the colour directly before the name of the cell, which a tiny model learns much sooner than
    coordinates alone.
    """
    color = screen.target.color
    return Answer(
        progress="Start.",
        reasoning=f"Find {color} {chosen.cell_name}.",
        action=screen.action_on(chosen),
        summary=screen.kind.summary.format(color=color),
    )


def _step(name: str, screen: Screen, target_box_only: bool) -> GuiStep:
    place = list(screen.target.center)
    right = answer(screen, screen.target)
    label = {PROGRESS: right.progress, REASONING: right.reasoning, SUMMARY: right.summary}
    return GuiStep(
        row_id=name,
        episode_id=name,
        step_index=0,
        group=screen.kind.name,
        task=screen.instruction,
        image=Path(f"{name}.png"),
        image_size=(SIDE, SIDE),
        action=screen.action_on(screen.target),
        boxes=tuple(one.box for one in ((screen.target,) if target_box_only else screen.elements)),
        memory=None,
        is_first=True,
        is_last=True,
        source={"touch": place, "lift": place, LABEL: label},
    )
