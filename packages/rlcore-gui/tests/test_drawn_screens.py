"""Screens that are drawn: their pictures, arrangements and steps."""

from __future__ import annotations

import io
import random
import re
from collections import Counter
from itertools import islice

import pytest
from PIL import Image
from rlcore_gui.drawn.pictures import BACKGROUND, paint_app, paint_entry, paint_field, paint_link, paint_menu, picture
from rlcore_gui.drawn.screens import CELLS, COLORS, NAMES, SIDE, ScreenKind, center, draw_screen
from rlcore_gui.drawn.steps import COLORS_TASK, PLACES_TASK, PRESENCE_TASK, Boxes, DrawnStep, draw_steps

APPS = ScreenKind(
    name="home",
    number=0,
    instruction="open the {color} app",
    action="CLICK",
    summary="Opened {color}.",
    size=(44, 44),
    paint=paint_app,
)
ENTRIES = ScreenKind(
    name="list",
    number=1,
    instruction="open the {color} entry",
    action="CLICK",
    summary="Opened {color}.",
    size=(44, 44),
    paint=paint_entry,
)
FIELDS = ScreenKind(
    name="form",
    number=2,
    instruction='type "{value}" into the {color} field',
    action="TYPE",
    summary="Filled {color}.",
    values=("oslo", "lima"),
    size=(48, 36),
    paint=paint_field,
)
LINKS = ScreenKind(
    name="links",
    number=3,
    instruction="click the {color} link",
    action="CLICK",
    summary="Clicked {color}.",
    size=(48, 30),
    paint=paint_link,
)
MENUS = ScreenKind(
    name="menu",
    number=4,
    instruction='select "{value}" in the {color} menu',
    action="SELECT",
    summary="Set {color}.",
    values=("one", "two"),
    size=(48, 36),
    paint=paint_menu,
)
KINDS = (APPS, ENTRIES, FIELDS, LINKS, MENUS)
CENTERS = [center(cell) for cell in range(CELLS * CELLS)]


def steps(count: int, seed: int = 0) -> list[DrawnStep]:
    drawn = draw_steps(random.Random(seed), KINDS, name="row", elements=(1, 4), held_out=False)
    return list(islice(drawn, count))


def on_an_element(drawn: DrawnStep) -> bool:
    """Whether the right position lies on an element."""
    assert drawn.step.action.position is not None
    x, y = drawn.step.action.position
    return any(top <= y <= top + height and left <= x <= left + width for top, left, height, width in drawn.step.boxes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("held_out", [False, True])
def test_element_lies_in_its_cell_and_covers_its_center(kind: ScreenKind, held_out: bool) -> None:
    rng = random.Random(0)
    for _ in range(100):
        screen = draw_screen(rng, kind, rng.randint(1, 4), held_out=held_out)
        assert screen.target in screen.elements
        assert len({element.color for element in screen.elements}) == len(screen.elements)
        for element in screen.elements:
            (x, y), (top, left, height, width) = center(element.cell), element.box
            column, row = element.cell % CELLS, element.cell // CELLS
            assert column / CELLS <= left < x < left + width <= (column + 1) / CELLS
            assert row / CELLS <= top < y < top + height <= (row + 1) / CELLS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_picture_has_the_color_of_every_element_and_no_other(kind: ScreenKind) -> None:
    screen = draw_screen(random.Random(1), kind, 3, held_out=False)
    image = Image.open(io.BytesIO(picture(screen, random.Random(0)))).convert("RGB")
    assert image.size == (SIDE, SIDE)
    shown = {color for _, color in image.getcolors(SIDE * SIDE)}
    expected = {COLORS[element.color] for element in screen.elements}
    assert expected <= shown
    assert not shown & (set(COLORS.values()) - expected)


def test_blank_pictures_are_all_equal() -> None:
    screens = (draw_screen(random.Random(seed), APPS, 3, held_out=False) for seed in range(5))
    (blank,) = {picture(screen, random.Random(0), blank=True) for screen in screens}
    colors = {color for _, color in Image.open(io.BytesIO(blank)).convert("RGB").getcolors()}
    assert colors == {BACKGROUND, (255, 255, 255)}, "only the ticks at the edges of the cells are shown"


def test_background_normalises_to_zero() -> None:
    assert all(abs(level / 255 - 0.5) < 0.01 for level in BACKGROUND)


def combinations(held_out: bool) -> set[tuple[str, str, int]]:
    """The kinds, colours and cells of all elements on many screens."""
    rng = random.Random(2)
    screens = [draw_screen(rng, kind, rng.randint(1, 4), held_out=held_out) for kind in KINDS for _ in range(400)]
    return {(screen.kind.name, element.color, element.cell) for screen in screens for element in screen.elements}


def test_held_out_screens_show_no_combination_of_training() -> None:
    trained, held_out = combinations(False), combinations(True)
    every = {(kind.name, color, cell) for kind in KINDS for color in COLORS for cell in range(CELLS * CELLS)}
    assert not trained & held_out
    assert trained | held_out == every
    assert len(held_out) == len(KINDS) * len(COLORS), "one cell of each kind and colour"


@pytest.mark.parametrize("left_out", range(3), ids=["color-cell", "kind-cell", "kind-color"])
def test_training_has_every_pair(left_out: int) -> None:
    def pairs(found: set[tuple[str, str, int]]) -> set[tuple[object, ...]]:
        return {one[:left_out] + one[left_out + 1 :] for one in found}

    assert pairs(combinations(False)) == pairs(combinations(False) | combinations(True))


def test_steps_depend_only_on_the_seed() -> None:
    assert steps(20) == steps(20)
    assert steps(20) != steps(20, seed=1)


def test_step_and_answer_act_on_the_target() -> None:
    for drawn in steps(50):
        step = drawn.step
        assert step.is_first
        assert step.is_last
        assert step.image_size == (SIDE, SIDE)
        assert (step.action.value is None) is (step.group in {"home", "list", "links"})
        assert on_an_element(drawn)


def test_task_does_not_tell_the_place() -> None:
    """Each task occurs with targets in all cells but the one that is held out."""
    places: dict[str, set[object]] = {}
    for drawn in steps(1500):
        places.setdefault(drawn.step.task, set()).add(drawn.step.action.position)
    assert {len(found) for found in places.values()} == {CELLS * CELLS - 1}


def test_guesses_name_and_tap_every_cell_equally_often_wherever_the_target_is() -> None:
    counts = Counter[tuple[object, object]]()
    for drawn in steps(4000):
        position = drawn.guess.action.position
        assert drawn.guess.reasoning.endswith(f" {NAMES[CENTERS.index(position)]}.")
        counts[drawn.step.action.position, position] += 1
    assert len(counts) == len(CENTERS) ** 2
    assert all(180 < count < 320 for count in counts.values())


def test_descriptions_name_colors_and_cells_without_telling_which_color_is_where() -> None:
    colors_of: dict[str, set[str]] = {}
    looked_for = {True: 0, False: 0}
    for drawn in steps(600):
        colors, places = drawn.descriptions[COLORS_TASK].split(", "), drawn.descriptions[PLACES_TASK]
        named = re.findall(r"([A-D]) \[([0-9.]+), ([0-9.]+)\]", places)
        assert len(colors) == len(set(colors)) == len(named) == len(drawn.step.boxes)
        assert all(CENTERS[NAMES.index(name)] == (float(x), float(y)) for name, x, y in named)
        assert [name for name, _, _ in named] == sorted(name for name, _, _ in named)
        assert drawn.step.action.position in [CENTERS[NAMES.index(name)] for name, _, _ in named]
        (wanted,) = (color for color in COLORS if PRESENCE_TASK.format(color=color) in drawn.descriptions)
        present = f"Find {wanted} {'yes' if wanted in colors else 'no'}."
        assert drawn.descriptions[PRESENCE_TASK.format(color=wanted)] == present
        if len(colors) > 1:
            colors_of.setdefault(named[0][0], set()).add(colors[0])
        looked_for[wanted in colors] += 1
    assert all(colors_of[name] == set(COLORS) for name in "ABC")
    assert all(count > 120 for count in looked_for.values())


@pytest.mark.parametrize(("boxes", "expected"), [("elements", 4), ("target", 1), ("none", 0)])
def test_steps_have_the_boxes_that_a_benchmark_needs(boxes: Boxes, expected: int) -> None:
    (drawn,) = islice(draw_steps(random.Random(0), KINDS, name="row", elements=(4, 4), held_out=False, boxes=boxes), 1)
    assert len(drawn.step.boxes) == expected
