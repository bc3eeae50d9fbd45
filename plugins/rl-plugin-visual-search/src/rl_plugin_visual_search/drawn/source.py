"""Rows and demonstrations about drawn pictures, as the dataset asks for them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlcore import CodeResult, DataError, Demonstration, ImagePart, Message, Task, TextPart, ToolCall

from rl_plugin_visual_search.data.rows import Row
from rl_plugin_visual_search.data.tasks import as_task
from rl_plugin_visual_search.drawn.marks import ROWS
from rl_plugin_visual_search.drawn.pictures import encoded, picture, reduced
from rl_plugin_visual_search.drawn.scenes import CELLS, SIDE, Box, Scene, cell_box, draw_scene
from rl_plugin_visual_search.grammar import answer_turn, code_turn
from rl_plugin_visual_search.observations import result_observation, shown_pictures
from rl_plugin_visual_search.prompts import clue
from rl_plugin_visual_search.zoom import NAME, Zoom, corners_of, zoom_schema

if TYPE_CHECKING:
    from PIL import Image

    from rl_plugin_visual_search.config import DataConfig

QUESTION = "Which pattern is on the colored sign?"
WITHOUT_TOOL = "Answer at once."
"""Follows the question if there is no tool."""
OVERVIEW, DETAIL = "Describe the map.", "Describe the detail."
"""Requests of descriptions, which share no words with the question."""
DETAILS = 0.5
"""Fraction of the descriptions that are of a crop."""
NOTHING, GUESS = "Nothing.", "Guess."
"""Thoughts about a crop without the target, and without a tool."""
SOURCE = "drawn"


def drawn_rows(config: DataConfig, split: str) -> Iterable[Row]:
    """The questions of ``train`` or ``evaluation``. Held-out signs are at pixels where training has none."""
    rng, held_out = random.Random(f"{split} {config.drawn_seed}"), split != "train"
    for number in range(config.held_out if held_out else config.drawn):
        scene = draw_scene(rng, held_out=held_out)
        yield _row(f"{split}:{number}", scene, picture(scene, rng, blank=config.blank), config.tools)


def drawn_demonstrations(
    config: DataConfig, count: int, *, seed: int, importable: Sequence[str] | None = None
) -> Iterable[Demonstration]:
    """Conversations for the warm-up: descriptions, guesses and right answers, as the configuration says.

    Args:
        config: the options of the dataset
        count: number of conversations
        seed: of the choice
        importable: as for `rl_plugin_visual_search.prompts.opening`

    Raises:
        DataError: the prompts do not show the pictures.
    """
    if not config.show_pictures:
        fix = "set data.show_pictures=true, or warmup.steps=0"
        raise DataError(
            "demonstrations on drawn pictures show them", found="false", where="data.show_pictures", fix=fix
        )
    rng = random.Random(f"demonstrations {config.drawn_seed} {seed}")
    return (_demonstration(config, rng, importable) for _ in range(count))


def _demonstration(config: DataConfig, rng: random.Random, importable: Sequence[str] | None) -> Demonstration:
    scene = draw_scene(rng, held_out=False)
    drawn = picture(scene, rng, blank=config.blank)
    marks = list(ROWS)
    if rng.random() < config.descriptions:
        if rng.random() < DETAILS:
            return _description(DETAIL, encoded(drawn.crop(cell_box(scene.target.cell))), _detail(scene))
        return _description(OVERVIEW, encoded(reduced(drawn)), _place(scene))
    if config.tools == "none" or rng.random() < config.direct:
        task = as_task(_row("", scene, drawn, "none"), tools="none", style=config.style)
        answer = answer_turn(GUESS, rng.choice(marks))
        return Demonstration(messages=(*task.messages, _turn(answer)), images=task.images)
    guess = rng.random() < config.guesses
    cell = rng.randrange(CELLS**2) if guess else scene.target.cell
    task = as_task(
        _row("", scene, drawn, config.tools),
        tools=config.tools,
        style=config.style,
        coordinates=config.coordinates,
        importable=importable,
    )
    look = _with_zoom if config.tools == "zoom" else _with_code
    turns, crop = look(task, _place(scene), drawn, cell_box(cell))
    seen = _detail(scene) if cell == scene.target.cell else NOTHING
    answer = answer_turn(seen, rng.choice(marks) if guess else scene.target.mark)
    tools = (zoom_schema(config.coordinates),) if config.tools == "zoom" else ()
    messages = (*task.messages, *turns, _turn(answer))
    return Demonstration(messages=messages, tools=tools, images=(*task.images, crop))


def _with_code(task: Task, thought: str, drawn: Image.Image, box: Box) -> tuple[tuple[Message, ...], bytes]:
    """A turn whose code shows a part of the picture, what it returns, and the part."""
    crop = encoded(drawn.crop(box))
    left, top, right, bottom = box
    code = code_turn(thought, f"{clue(0)}.crop(({left},{top},{right},{bottom}))")
    result = CodeResult(status="ok", images=(crop,), image_names=(clue(1),))
    return (_turn(code), *result_observation(result, shown_pictures(result, 1), loaded=1).messages), crop


def _with_zoom(task: Task, thought: str, drawn: Image.Image, box: Box) -> tuple[tuple[Message, ...], bytes]:
    """A turn that zooms in to a part of the picture, the answer of the tool, and the part."""
    coordinates = task.fields["coordinates"]
    corners = corners_of(box, (SIDE, SIDE), coordinates)
    call = ToolCall(name=NAME, arguments={"bbox_2d": corners}, id="call_0")
    answer, crop = Zoom(task.images, coordinates).answer(call)
    return (Message(role="assistant", content=thought, tool_calls=(call,)), answer), crop


def _place(scene: Scene) -> str:
    """Where the sign is, with the digits with which the coordinates of the crop begin."""
    return f"{scene.target.fill} at {scene.target.cell % CELLS} {scene.target.cell // CELLS}."


def _detail(scene: Scene) -> str:
    """What the sign looks like."""
    return f"{scene.target.fill} with {scene.target.mark}."


def _description(request: str, image: bytes, text: str) -> Demonstration:
    asked = Message(role="user", content=(ImagePart.of(image), TextPart(text=request)))
    return Demonstration(messages=(asked, _turn(text)), images=(image,))


def _turn(text: str) -> Message:
    return Message(role="assistant", content=text)


def _row(name: str, scene: Scene, drawn: Image.Image, tools: str) -> Row:
    question = f"{QUESTION} {WITHOUT_TOOL}" if tools == "none" else QUESTION
    return Row(id=name, question=question, answer=scene.target.mark, images=(encoded(drawn),), data_source=SOURCE)


__all__ = ["drawn_demonstrations", "drawn_rows"]
