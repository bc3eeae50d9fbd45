"""Drawn pictures: what a reduced picture shows, and what it does not."""

from __future__ import annotations

import io
import random
from collections import Counter
from dataclasses import replace

import pytest
from PIL import Image
from rl_plugin_visual_search.drawn.marks import ROWS, mark_image
from rl_plugin_visual_search.drawn.pictures import encoded, picture
from rl_plugin_visual_search.drawn.scenes import CELLS, COLORS, Scene, cell_box, draw_scene
from rlcore.images import ImageProcessor

PROCESSOR = ImageProcessor(min_pixels=112**2, max_pixels=112**2, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
"""That of the model of the default recipe."""


def scenes(count: int, *, held_out: bool = False) -> list[Scene]:
    rng = random.Random(7)
    return [draw_scene(rng, held_out=held_out) for _ in range(count)]


def seen(data: bytes) -> Image.Image:
    """A picture as the model sees it."""
    return Image.open(io.BytesIO(PROCESSOR.fit(data)))


def marked(scene: Scene, mark: str) -> Scene:
    """The scene with this mark on all signs."""
    others = tuple(replace(sign, mark=mark) for sign in scene.others)
    return replace(scene, target=replace(scene.target, mark=mark), others=others)


def test_reduced_picture_does_not_depend_on_the_marks() -> None:
    colors = set()
    for scene in scenes(12):
        colors.add(scene.target.fill)
        reduced = {seen(encoded(picture(marked(scene, mark), random.Random(1)))).tobytes() for mark in ROWS}
        assert len(reduced) == 1
    assert colors == set(COLORS)


def test_crop_of_the_cell_shows_the_mark() -> None:
    for scene in scenes(5):
        crops = {
            seen(encoded(picture(marked(scene, mark), random.Random(1)).crop(cell_box(scene.target.cell)))).tobytes()
            for mark in ROWS
        }
        assert len(crops) == len(ROWS)


def test_target_is_the_only_coloured_thing_and_in_its_cell() -> None:
    for scene in scenes(20):
        _, saturation, _ = picture(scene, random.Random(1)).convert("RGB").convert("HSV").split()
        left, top, right, bottom = cell_box(scene.target.cell)
        box = saturation.point([0] * 10 + [255] * 246).getbbox()
        assert box is not None
        assert left <= box[0] < box[2] <= right
        assert top <= box[1] < box[3] <= bottom


@pytest.mark.parametrize("held_out", [False, True])
def test_cells_colours_and_marks_are_balanced(held_out: bool) -> None:
    drawn = scenes(1200, held_out=held_out)
    for values, kinds in (
        ([scene.target.cell for scene in drawn], CELLS**2),
        ([scene.target.fill for scene in drawn], len(COLORS)),
        ([scene.target.mark for scene in drawn], len(ROWS)),
    ):
        counts = Counter(values)
        assert len(counts) == kinds
        assert max(counts.values()) < 1.5 * len(drawn) / kinds


def test_other_signs_say_nothing_about_the_mark() -> None:
    drawn = scenes(1000)
    same = sum(sign.mark == scene.target.mark for scene in drawn for sign in scene.others)
    assert abs(same / sum(len(scene.others) for scene in drawn) - 1 / len(ROWS)) < 0.03


def test_held_out_signs_are_where_training_has_none() -> None:
    places = [
        {(sign.left, sign.top) for scene in scenes(500, held_out=held_out) for sign in (scene.target, *scene.others)}
        for held_out in (False, True)
    ]
    assert not places[0] & places[1]


def test_marks_have_the_same_mean() -> None:
    assert len({sum(mark_image(name).tobytes()) for name in ROWS}) == 1


def test_same_seed_draws_the_same_pictures() -> None:
    first, second = (
        [encoded(picture(scene, random.Random(3))) for scene in scenes(3)] for _ in range(2)
    )
    assert first == second
