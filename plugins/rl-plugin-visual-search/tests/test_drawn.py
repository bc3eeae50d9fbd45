"""Drawn pictures: what a reduced picture shows, and what it does not."""

from __future__ import annotations

import io
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest
from PIL import Image
from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.drawn.marks import MARK, ROWS, mark_image
from rl_plugin_visual_search.drawn.pictures import encoded, picture
from rl_plugin_visual_search.drawn.scenes import CELLS, COLORS, SIDE, STEP, Box, Scene, cell_box, draw_scene
from rl_plugin_visual_search.drawn.source import DETAIL, NOTHING, OVERVIEW, WITHOUT_TOOL
from rl_plugin_visual_search.grammar import parse
from rlcore import Demonstration
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


def coloured_part_is_in(image: Image.Image, wanted: Box) -> bool:
    saturation = image.convert("RGB").convert("HSV").split()[1]
    box = saturation.point([0] * 10 + [255] * 246).getbbox()
    assert box is not None
    return wanted[0] <= box[0] and wanted[1] <= box[1] and box[2] <= wanted[2] and box[3] <= wanted[3]


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
        assert coloured_part_is_in(picture(scene, random.Random(1)), cell_box(scene.target.cell))


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
    first, second = ([encoded(picture(scene, random.Random(3))) for scene in scenes(3)] for _ in range(2))
    assert first == second


def test_seed_of_drawn_pictures_draws_others() -> None:
    drawn = [VisualSearchData(data(drawn_seed=seed)).tasks("train")[0].images for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def demonstrations(count: int, **options: float | str) -> list[Demonstration]:
    return list(VisualSearchData(data(**options)).demonstrations(count, seed=0))


def data(**options: float | str) -> DataConfig:
    return DataConfig.model_validate({"style": "plain", "drawn": 20, "held_out": 20, **options})


def texts(one: Demonstration, role: str) -> list[str]:
    return [message.text for message in one.messages if message.role == role]


def test_question_names_neither_the_target_nor_its_place() -> None:
    asked = {task.messages[0].text for task in VisualSearchData(data()).tasks("train")}
    assert len(asked) == 1
    assert not set(re.findall(r"\w+", asked.pop().lower())) & {*ROWS, *COLORS}


def test_held_out_pictures_do_not_occur_in_training() -> None:
    source = VisualSearchData(data())
    train, held_out = ({task.images[0] for task in source.tasks(split)} for split in ("train", "evaluation"))
    assert len(train) == len(held_out) == 20
    assert not train & held_out


def test_demonstrations_without_guesses_crop_the_target_and_are_right() -> None:
    for one in demonstrations(5):
        code, answer = texts(one, "assistant")
        box = box_of(code)
        picture, crop = (Image.open(io.BytesIO(image)).convert("RGB") for image in one.images)
        assert crop.tobytes() == picture.crop(box).tobytes()
        right = [mark for mark in ROWS if mark_image(mark).convert("RGB").tobytes() in marks_in(crop)]
        assert right == [parse(answer).answer]


def marks_in(crop: Image.Image) -> set[bytes]:
    """All squares of the size of a mark at places where a sign can have one."""
    places = range(0, crop.width - MARK + 1, STEP)
    return {crop.crop((x, y, x + MARK, y + MARK)).tobytes() for x in places for y in places}


def box_of(code: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", code.partition("crop")[2]))


def test_guesses_crop_any_cell_and_give_any_answer() -> None:
    made = [texts(one, "assistant") for one in demonstrations(600, guesses=1.0)]
    answers = Counter(parse(answer).answer for _, answer in made)
    assert set(answers) == set(ROWS)
    assert max(answers.values()) < 1.4 * 600 / len(ROWS)
    assert {box_of(code) for code, _ in made} == {cell_box(cell) for cell in range(CELLS**2)}
    assert sum(answer.startswith(NOTHING) for _, answer in made) > 500


def test_thought_of_a_guess_says_where_the_target_is() -> None:
    for one in demonstrations(10, guesses=1.0):
        column, row = map(int, re.findall(r"\d", texts(one, "assistant")[0].partition("<code>")[0]))
        assert coloured_part_is_in(Image.open(io.BytesIO(one.images[0])), cell_box(row * CELLS + column))


def test_demonstrations_without_the_tool_answer_at_once() -> None:
    for options in ({"direct": 1.0}, {"tools": "none"}):
        one = demonstrations(1, **options)[0]
        (asked,), (answer,) = texts(one, "user"), texts(one, "assistant")
        assert asked.endswith(WITHOUT_TOOL)
        assert parse(answer).answer in ROWS


def test_question_without_the_tool_is_that_of_its_demonstrations() -> None:
    task = VisualSearchData(data(tools="none")).tasks("evaluation")[0]
    assert [message.text for message in task.messages] == texts(demonstrations(1, direct=1.0)[0], "user")


def test_description_of_the_map_starts_the_coordinates_of_the_crop() -> None:
    for one in demonstrations(20, descriptions=1.0):
        (asked,), (said,) = texts(one, "user"), texts(one, "assistant")
        if asked == DETAIL:
            assert re.fullmatch(rf"({'|'.join(COLORS)}) with ({'|'.join(ROWS)})\.", said)
        else:
            assert asked == OVERVIEW
            assert re.fullmatch(rf"({'|'.join(COLORS)}) at [0-3] [0-3]\.", said)


def test_blank_pictures_show_no_signs() -> None:
    for task in VisualSearchData(data(blank=True)).tasks("train")[:3]:
        saturation = Image.open(io.BytesIO(task.images[0])).convert("RGB").convert("HSV").split()[1]
        assert saturation.getextrema() == (0, 0)


@pytest.mark.parametrize("coordinates", ["pixels", "thousandths"])
def test_demonstrations_for_the_zoom_tool_call_it_with_the_cell(coordinates: str) -> None:
    for one in demonstrations(5, tools="zoom", coordinates=coordinates):
        (look,) = (message for message in one.messages if message.tool_calls)
        (call,) = look.tool_calls
        column, row = map(int, re.findall(r"\d", look.text))
        box = cell_box(row * CELLS + column)
        scale = 1 if coordinates == "pixels" else 1000 / SIDE
        assert call.arguments == {"bbox_2d": tuple(scale * side for side in box)}
        drawn, crop = (Image.open(io.BytesIO(image)).convert("RGB") for image in one.images)
        assert crop.tobytes() == drawn.crop(box).tobytes()
        assert [tool.name for tool in one.tools] == [call.name]
        right = [mark for mark in ROWS if mark_image(mark).convert("RGB").tobytes() in marks_in(crop)]
        assert right == [parse(one.messages[-1].text).answer]


def test_words_of_a_tokenizer_have_the_tool_and_its_calls() -> None:
    found = "\n".join(islice(VisualSearchData(data(tools="zoom")).texts(), 60))
    assert "tools: image_zoom_in_tool(bbox_2d, label, image)" in found
    assert '{"name": "image_zoom_in_tool", "arguments": {"bbox_2d": [' in found
    assert "</code>" not in found
