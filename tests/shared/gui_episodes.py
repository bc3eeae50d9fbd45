"""Small recorded episodes with drawn screenshots, for the tests of GUI agents."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

from PIL import Image, ImageDraw
from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.answers import Answer, ParsedAnswer, render
from rlcore_gui.benchmark import Benchmark, Metrics, StepScores, by_group, episode_success, means
from rlcore_gui.steps import GuiStep
from rlcore_gui.tasks import Shown

TABLE = ActionTable(
    (
        ActionKind(name="CLICK", takes_position=True, meaning="tap."),
        ActionKind(name="TYPE", takes_value=True, meaning="type."),
        ActionKind(name="HOME", meaning="go home."),
    )
)
CLICK, TYPE, HOME = Action(name="CLICK", position=(0.25, 0.5)), Action(name="TYPE", value="don't"), Action(name="HOME")


def _score(action: Action | None, step: GuiStep) -> float:
    return float(action == step.action)


def _measure(answers: Sequence[ParsedAnswer], steps: Sequence[GuiStep]) -> list[StepScores]:
    return [
        StepScores.of(step, {"action": _score(answer.action, step), step.action.name: _score(answer.action, step)})
        for answer, step in zip(answers, steps, strict=True)
    ]


def _summarize(scores: Sequence[StepScores]) -> Metrics:
    groups = {f"{group}/{name}": value for group, part in by_group(scores).items() for name, value in part.items()}
    return {**means(scores), **groups, "episode_success": episode_success(scores, "action") or 0.0}


TOY = Benchmark(
    name="toy",
    table=TABLE,
    score=_score,
    measure=_measure,
    summarize=_summarize,
    components={"action": "action"},
    right="action",
    shown=("action", "episode_success"),
)
"""A benchmark in which an action is right if it equals the recorded one."""


def said(action: Action, summary: str = "a summary") -> str:
    """A well-formed answer."""
    return render(Answer(progress="p", reasoning="r", action=action, summary=summary), TABLE)


SIZE = (84, 112)
"""Width and height of a screenshot in pixels."""


def screenshot(number: int, position: tuple[float, float] | None = None) -> bytes:
    """A screen with a button around the position, whose colour depends on the number."""
    image = Image.new("RGB", SIZE, (240, 240, 250 - number % 50))
    if position is not None:
        x, y = position[0] * SIZE[0], position[1] * SIZE[1]
        ImageDraw.Draw(image).rectangle((x - 9, y - 9, x + 9, y + 9), fill=(30 * number % 250, 90, 200))
    written = io.BytesIO()
    image.save(written, format="PNG")
    return written.getvalue()


def episode(*actions: Action, name: str = "e1", group: str = "general", boxed: bool = True) -> list[Shown]:
    """The steps of an episode with these recorded actions, and a box around each tap."""
    shown = []
    for index, action in enumerate(actions):
        place, last = action.position, index == len(actions) - 1
        source = {"touch": list(place), "lift": list(place)} if place is not None else {}
        step = GuiStep(
            row_id=f"{name}-{index}",
            episode_id=name,
            step_index=index,
            group=group,
            task="Open the settings",
            image=None,
            image_size=SIZE,
            action=action,
            boxes=((place[1] - 0.05, place[0] - 0.1, 0.1, 0.2),) if place is not None and boxed else (),
            memory=f"{index} actions are done." if index else None,
            is_first=index == 0,
            is_last=last,
            next_row_id=None if last else f"{name}-{index + 1}",
            source=source,
        )
        shown.append(Shown(step=step, screenshot=screenshot(index, place)))
    return shown


def without(shown: list[Shown], index: int) -> list[Shown]:
    """The episode without a step whose screenshot is missing."""
    kept = [each for number, each in enumerate(shown) if number != index]
    return [
        replace(each, step=replace(each.step, is_first=number == 0, is_last=number == len(kept) - 1))
        for number, each in enumerate(kept)
    ]
