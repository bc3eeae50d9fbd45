"""Screens that are drawn: their pictures, arrangements and steps."""

from __future__ import annotations

import io
import random
import re
from itertools import islice

import pytest
from PIL import Image
from rlcore_gui.dataset import LABEL
from rlcore_gui.drawn.pictures import BACKGROUND, paint_app, paint_entry, paint_field, paint_link, paint_menu, picture
from rlcore_gui.drawn.screens import CELLS, COLORS, NAMES, SIDE, ScreenKind, center, draw_screen, is_held_out
from rlcore_gui.drawn.steps import Boxes, DrawnStep, draw_steps
from rlcore_gui.prepare.pseudo_labels import REASONING

APPS = ScreenKind(
    name="home",
    instruction="open the {color} app",
    action="CLICK",
    summary="Opened {color}.",
    size=(44, 44),
    paint=paint_app,
)
ENTRIES = ScreenKind(
    name="list",
    instruction="open the {color} entry",
    action="CLICK",
    summary="Opened {color}.",
    size=(44, 44),
    paint=paint_entry,
)
FIELDS = ScreenKind(
    name="form",
    instruction='type "{value}" into the {color} field',
    action="TYPE",
    summary="Filled {color}.",
    values=("oslo", "lima"),
    size=(48, 36),
    paint=paint_field,
)
LINKS = ScreenKind(
    name="links",
    instruction="click the {color} link",
    action="CLICK",
    summary="Clicked {color}.",
    size=(48, 30),
    paint=paint_link,
)
MENUS = ScreenKind(
    name="menu",
    instruction='select "{value}" in the {color} menu',
    action="SELECT",
    summary="Set {color}.",
    values=("one", "two"),
    size=(48, 36),
    paint=paint_menu,
)
KINDS = (APPS, ENTRIES, FIELDS, LINKS, MENUS)


def steps(count: int, seed: int = 0, least: int = 1, guesses: float = 0.0) -> list[DrawnStep]:
    rng = random.Random(seed)
    drawn = draw_steps(rng, KINDS, name="row", elements=(least, 4), held_out=False, guesses=guesses)
    return list(islice(drawn, count))


def on_an_element(drawn: DrawnStep) -> bool:
    """Whether the demonstrated position lies on an element."""
    assert drawn.answer.action.position is not None
    x, y = drawn.answer.action.position
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


@pytest.mark.parametrize("held_out", [False, True])
def test_held_out_elements_are_where_training_shows_none(held_out: bool) -> None:
    rng = random.Random(2)
    for kind in KINDS:
        for _ in range(40):
            elements = draw_screen(rng, kind, rng.randint(1, 4), held_out=held_out).elements
            assert {is_held_out(element) for element in elements} == {held_out}


@pytest.mark.parametrize("held_out", [False, True])
def test_every_color_occurs_in_every_cell(held_out: bool) -> None:
    """Otherwise the task alone would exclude some cells."""
    rng = random.Random(3)
    drawn = [draw_screen(rng, APPS, 1, held_out=held_out).target for _ in range(1500)]
    assert len({(element.color, element.cell) for element in drawn}) == len(COLORS) * CELLS * CELLS


def test_steps_depend_only_on_the_seed() -> None:
    assert steps(20) == steps(20)
    assert steps(20) != steps(20, seed=1)


def test_step_and_answer_act_on_the_target() -> None:
    for drawn in steps(50):
        step = drawn.step
        assert step.is_first
        assert step.is_last
        assert step.image_size == (SIDE, SIDE)
        assert drawn.answer.action == step.action
        assert (step.action.value is None) is (step.group in {"home", "list", "links"})
        assert on_an_element(drawn)


def test_task_does_not_tell_the_place() -> None:
    """Each task occurs with targets in all cells."""
    places: dict[str, set[object]] = {}
    for drawn in steps(1500):
        places.setdefault(drawn.step.task, set()).add(drawn.step.action.position)
    assert {len(found) for found in places.values()} == {CELLS * CELLS}


def test_guesses_act_at_random_positions_but_reason_rightly() -> None:
    drawn = steps(400, guesses=1.0)
    positions = {one.answer.action.position for one in drawn}
    assert len(positions) > 60
    assert not positions & {center(cell) for cell in range(CELLS * CELLS)}
    assert all(one.answer.reasoning == one.step.source[LABEL][REASONING] for one in drawn)


def test_description_names_every_element_with_its_cell_and_position() -> None:
    first: set[str] = set()
    for drawn in steps(200, least=2):
        named = re.findall(r"(\w+) ([A-D]) \[([0-9.]+), ([0-9.]+)\]", drawn.description)
        places = {color: (name, (float(x), float(y))) for color, name, x, y in named}
        assert len(places) == len(drawn.step.boxes)
        assert all(center(NAMES.index(name)) == place for name, place in places.values())
        color = next(color for color in COLORS if color in drawn.step.task)
        assert places[color][1] == drawn.step.action.position
        first.add(next(iter(places)))
    assert first == set(COLORS)


@pytest.mark.parametrize(("boxes", "expected"), [("elements", 4), ("target", 1), ("none", 0)])
def test_steps_have_the_boxes_that_a_benchmark_needs(boxes: Boxes, expected: int) -> None:
    (drawn,) = islice(draw_steps(random.Random(0), KINDS, name="row", elements=(4, 4), held_out=False, boxes=boxes), 1)
    assert len(drawn.step.boxes) == expected
