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
from rlcore_gui.drawn.screens import CELLS, COLORS, NAMES, REWARDED, SHOWN, SIDE, Paint, ScreenKind, center, draw_screen
from rlcore_gui.drawn.steps import Boxes, DrawnStep, Use, draw_steps
from rlcore_gui.prepare.pseudo_labels import REASONING

Size = tuple[int, int]


def kind(
    name: str, held_out: str, instruction: str, action: str, size: Size, paint: Paint, values: tuple[str, ...] = ()
) -> ScreenKind:
    summary = "Acted on {color}."
    return ScreenKind(
        name=name,
        held_out=held_out,
        instruction=instruction,
        action=action,
        summary=summary,
        size=size,
        paint=paint,
        values=values,
    )


APPS = kind("home", "yellow", "open the {color} app", "CLICK", (44, 44), paint_app)
KINDS = (
    APPS,
    kind("list", "pink", "open the {color} entry", "CLICK", (44, 44), paint_entry),
    kind("form", "cyan", 'type "{value}" into the {color} field', "TYPE", (48, 36), paint_field, ("oslo", "lima")),
    kind("links", "yellow", "click the {color} link", "CLICK", (48, 30), paint_link),
    kind("menu", "cyan", 'select "{value}" in the {color} menu', "SELECT", (48, 36), paint_menu, ("one", "two")),
)


def steps(count: int, seed: int = 0, least: int = 1, use: Use = "training") -> list[DrawnStep]:
    drawn = draw_steps(random.Random(seed), KINDS, name="row", elements=(least, 4), use=use)
    return list(islice(drawn, count))


def target_of(drawn: DrawnStep) -> str:
    """The colour that the task names."""
    return next(color for color in COLORS if color in drawn.step.task)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_element_lies_in_its_cell_and_covers_its_center(kind: ScreenKind) -> None:
    rng = random.Random(0)
    for _ in range(100):
        screen = draw_screen(rng, kind, rng.randint(1, 4), targets=REWARDED)
        assert [one.cell for one in screen.elements] == sorted(one.cell for one in screen.elements)
        assert screen.target in screen.elements
        assert len({element.color for element in screen.elements}) == len(screen.elements)
        for element in screen.elements:
            (x, y), (top, left, height, width) = center(element.cell), element.box
            column, row = element.cell % CELLS, element.cell // CELLS
            assert column / CELLS <= left < x < left + width <= (column + 1) / CELLS
            assert row / CELLS <= top < y < top + height <= (row + 1) / CELLS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_picture_has_the_color_of_every_element_and_no_other(kind: ScreenKind) -> None:
    screen = draw_screen(random.Random(1), kind, 3, targets=SHOWN)
    image = Image.open(io.BytesIO(picture(screen, random.Random(0)))).convert("RGB")
    assert image.size == (SIDE, SIDE)
    shown = {color for _, color in image.getcolors(SIDE * SIDE)}
    expected = {COLORS[element.color] for element in screen.elements}
    assert expected <= shown
    assert not shown & (set(COLORS.values()) - expected)


def test_blank_pictures_are_all_equal() -> None:
    screens = (draw_screen(random.Random(seed), APPS, 3, targets=SHOWN) for seed in range(5))
    (blank,) = {picture(screen, random.Random(0), blank=True) for screen in screens}
    colors = {color for _, color in Image.open(io.BytesIO(blank)).convert("RGB").getcolors()}
    assert colors == {BACKGROUND, (255, 255, 255)}, "only the ticks at the edges of the cells are shown"


def test_background_normalises_to_zero() -> None:
    assert all(abs(level / 255 - 0.5) < 0.01 for level in BACKGROUND)


@pytest.mark.parametrize("use", ["demonstrations", "training"])
def test_held_out_screens_ask_for_a_color_for_which_their_kind_is_never_asked(use: Use) -> None:
    held_out = {kind.name: kind.held_out for kind in KINDS}
    assert all(target_of(drawn) == held_out[drawn.step.group] for drawn in steps(100, use="held-out"))
    assert all(target_of(drawn) != held_out[drawn.step.group] for drawn in steps(500, use=use))


def test_a_target_is_not_found_by_elimination() -> None:
    """With three elements, a training screen has the colour that is held out, too."""
    held_out = {kind.name: kind.held_out for kind in KINDS}
    for drawn in steps(100, least=3):
        shown = Image.open(io.BytesIO(drawn.image)).convert("RGB").getcolors(SIDE * SIDE)
        assert COLORS[held_out[drawn.step.group]] in {color for _, color in shown}


def test_the_set_of_a_color_does_not_tell_the_target() -> None:
    rng = random.Random(4)
    for kind in KINDS:
        for targets in (REWARDED, SHOWN):
            for color in targets:
                assert {one.color for one in draw_screen(rng, kind, 2, targets=[color]).elements} < set(targets)
                assert {one.color for one in draw_screen(rng, kind, 3, targets=[color]).elements} == set(targets)


def test_targets_in_training_have_colors_that_no_demonstration_places() -> None:
    assert {target_of(drawn) for drawn in steps(200)} == set(REWARDED)
    drawn = steps(1500, least=2, use="demonstrations")
    assert {target_of(one) for one in drawn} == set(COLORS)
    assert not any(color in one.description for one in drawn for color in REWARDED)
    cells: dict[str, set[str]] = {}
    for one in drawn:
        if target_of(one) in SHOWN:
            assert one.answer.action == one.step.action
        else:
            cells.setdefault(one.step.source[LABEL][REASONING], set()).add(one.answer.reasoning)
    assert all(len(found) == CELLS * CELLS for found in cells.values()), "a guess does not tell the place"


def test_steps_depend_only_on_the_seed() -> None:
    assert steps(20) == steps(20)
    assert steps(20) != steps(20, seed=1)


def test_step_acts_on_the_target() -> None:
    for drawn in steps(50):
        step = drawn.step
        assert step.is_first
        assert step.is_last
        assert step.image_size == (SIDE, SIDE)
        assert (step.action.value is None) is (step.group in {"home", "list", "links"})
        assert step.action.position is not None
        x, y = step.action.position
        assert sum(top <= y <= top + high and left <= x <= left + wide for top, left, high, wide in step.boxes) == 1


def test_task_does_not_tell_the_place() -> None:
    """Each task occurs with targets in all cells."""
    places: dict[str, set[object]] = {}
    for drawn in steps(1500):
        places.setdefault(drawn.step.task, set()).add(drawn.step.action.position)
    assert {len(found) for found in places.values()} == {CELLS * CELLS}


def test_description_names_every_shown_color_with_its_cell_and_position() -> None:
    for drawn in steps(200, least=2, use="demonstrations"):
        named = re.findall(r"(\w+) ([A-D]) \[([0-9.]+), ([0-9.]+)\]", drawn.description)
        places = {color: (name, (float(x), float(y))) for color, name, x, y in named}
        assert set(places) <= set(SHOWN)
        assert all(center(NAMES.index(name)) == place for name, place in places.values())
        if target_of(drawn) in SHOWN:
            assert places[target_of(drawn)][1] == drawn.step.action.position


@pytest.mark.parametrize(("boxes", "expected"), [("elements", 4), ("target", 1), ("none", 0)])
def test_steps_have_the_boxes_that_a_benchmark_needs(boxes: Boxes, expected: int) -> None:
    (drawn,) = islice(draw_steps(random.Random(0), KINDS, name="row", elements=(4, 4), use="training", boxes=boxes), 1)
    assert len(drawn.step.boxes) == expected
