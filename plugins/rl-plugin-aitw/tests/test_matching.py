"""The official action matching, on values computed by hand."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from rl_plugin_aitw.actions import ACTIONS
from rl_plugin_aitw.gestures import TYPE_IDS
from rl_plugin_aitw.matching import Match, enlarged, match_all
from rlcore_gui.actions import Action, Point
from rlcore_gui.steps import Box, GuiStep

BOX = (0.4, 0.4, 0.1, 0.2)
FAR = (0.9, 0.9, 0.01, 0.01)


def click(x: float, y: float) -> Action:
    return Action(name="CLICK", position=(x, y))


def named(name: str, value: str | None = None) -> Action:
    return Action(name=name, value=value)


def recorded(action: Action, boxes: tuple[Box, ...] = (), **source: Any) -> GuiStep:
    return GuiStep(
        row_id="1",
        episode_id="1",
        step_index=0,
        group="general",
        task="t",
        image=None,
        image_size=None,
        action=action,
        boxes=boxes,
        source=source,
    )


def match(predicted: Action | None, reference: Action, boxes: tuple[Box, ...] = (), **source: Any) -> Match:
    (found,) = match_all([predicted], [recorded(reference, boxes, **source)])
    return found


@pytest.mark.parametrize(
    ("predicted", "reference", "boxes", "official"),
    [
        (click(0.59, 0.49), click(0.41, 0.41), (BOX,), True),  # both in the box
        (click(0.72, 0.45), click(0.30, 0.45), (BOX,), True),  # both in the enlarged box
        (click(0.76, 0.45), click(0.30, 0.45), (BOX,), False),
        (click(0.72, 0.45), click(0.30, 0.45), (FAR, BOX, FAR), True),
        (click(0.72, 0.45), click(0.30, 0.45), (FAR,), False),
        (click(0.72, 0.45), click(0.30, 0.45), (), False),
        (click(0.5, 0.5), click(0.5, 0.6399), (FAR,), True),  # near
        (click(0.5, 0.5), click(0.5, 0.6401), (FAR,), False),
        (click(0.5, 0.5), click(0.5, 0.6), (), True),
        (named("SCROLL UP"), named("SCROLL DOWN"), (), True),
        (named("SCROLL LEFT"), named("SCROLL RIGHT"), (), True),
        (named("SCROLL LEFT"), named("SCROLL DOWN"), (), False),
        (click(0.5, 0.5), named("SCROLL DOWN"), (), False),
        (named("SCROLL DOWN"), click(0.5, 0.5), (), False),
        (named("TYPE", "abc"), named("TYPE", "xyz"), (), True),
        (named("PRESS HOME"), named("PRESS HOME"), (), True),
        (named("PRESS HOME"), named("PRESS BACK"), (), False),
        (named("TYPE", "a"), click(0.5, 0.5), (), False),
        (None, click(0.5, 0.5), (BOX,), False),
        (None, named("PRESS HOME"), (), False),
    ],
)
def test_official_matching(predicted: Action | None, reference: Action, boxes: tuple[Box, ...], official: bool) -> None:
    assert match(predicted, reference, boxes).official is official


def test_box_is_enlarged_around_its_centre_and_moved_at_the_edge() -> None:
    boxes_24 = np.array([BOX, (0, 0, 0.1, 0.2)], dtype=np.float32)
    expected_24 = [[0.33, 0.26, 0.24, 0.48], [0, 0, 0.24, 0.48]]
    np.testing.assert_allclose(enlarged(boxes_24), expected_24, atol=1e-6)


def test_distance_is_compared_in_float32() -> None:
    # In float64 the distance is 0.14000000000000001 > 0.14 for the first pair. In float32 both sides round to equals.
    assert match(click(0.5, 0.14), click(0.5, 0.0)).official
    assert not match(click(0.5, 0.14000003), click(0.5, 0.0)).official


@pytest.mark.parametrize(
    ("predicted", "reference", "strict"),
    [
        (named("SCROLL UP"), named("SCROLL DOWN"), False),
        (named("SCROLL UP"), named("SCROLL UP"), True),
        (named("TYPE", " New  York"), named("TYPE", "new york"), True),
        (named("TYPE", "york"), named("TYPE", "new york"), False),
        (named("TYPE", ""), named("TYPE", "new york"), False),
        (click(0.5, 0.5), click(0.5, 0.6), True),
        (named("PRESS HOME"), named("PRESS HOME"), True),
        (None, named("PRESS HOME"), False),
    ],
)
def test_strict_matching_compares_text_and_direction(predicted: Action | None, reference: Action, strict: bool) -> None:
    assert match(predicted, reference).strict is strict


def test_recorded_click_that_is_a_drag_is_a_tap() -> None:
    reference = click(0.5, 0.55)
    drag = {"touch": (0.5, 0.5), "lift": (0.5, 0.6)}
    assert match(reference, reference, **drag).official
    assert not match(named("SCROLL DOWN"), reference, **drag).official
    assert not match(click(0.5, 0.7), reference, **drag).official


def test_recorded_touch_decides_where_a_tap_was() -> None:
    taps = {"touch": (0.5, 0.5), "lift": (0.53, 0.5)}
    assert match(click(0.37, 0.5), click(0.515, 0.5), **taps).official
    assert not match(click(0.655, 0.5), click(0.515, 0.5), **taps).official


def test_every_action_of_the_table_matches_itself_strictly() -> None:
    assert set(TYPE_IDS) == {kind.name for kind in ACTIONS.kinds}
    for kind in ACTIONS.kinds:
        action = Action(
            name=kind.name,
            value="text" if kind.takes_value else None,
            position=(1.0, 0.0) if kind.takes_position else None,
        )
        found = match(action, action)
        assert found.official
        assert found.strict


def test_batch_matches_like_single_pairs() -> None:
    numbers = random.Random(0)
    actions, steps = [], []
    for _ in range(400):
        actions.append(numbers.choice([None, random_action(numbers), random_action(numbers)]))
        boxes = tuple(random_box(numbers) for _ in range(numbers.randrange(4)))
        steps.append(recorded(random_action(numbers), boxes))
    together = match_all(actions, steps)
    assert together == [match_all([action], [step])[0] for action, step in zip(actions, steps, strict=True)]
    assert [each.official for each in together] == [slow_match(*pair) for pair in zip(actions, steps, strict=True)]
    assert sum(each.official for each in together) >= 20


def random_action(numbers: random.Random) -> Action:
    name = numbers.choice(["CLICK", "CLICK", "CLICK", "SCROLL UP", "SCROLL LEFT", "PRESS HOME"])
    return Action(name=name, position=(numbers.random(), numbers.random()) if name == "CLICK" else None)


def random_box(numbers: random.Random) -> Box:
    return (numbers.random(), numbers.random(), numbers.random() / 4, numbers.random() / 4)


def slow_match(predicted: Action | None, step: GuiStep) -> bool:
    """The definition, for actions of `random_action`, in float64."""
    reference = step.action
    if predicted is None or predicted.position is None or reference.position is None:
        vertical = {"SCROLL UP": True, "SCROLL LEFT": False}
        if predicted is not None and {predicted.name, reference.name} <= set(vertical):
            return vertical[predicted.name] == vertical[reference.name]
        return predicted is not None and predicted.name == reference.name
    (x, y), (x2, y2) = predicted.position, reference.position
    near = (x - x2) ** 2 + (y - y2) ** 2 <= 0.14**2
    return near or any(inside(predicted.position, box) and inside(reference.position, box) for box in step.boxes)


def inside(point: Point, box: Box) -> bool:
    (x, y), (top, left, height, width) = point, box
    top, left = max(0, top - 0.7 * height), max(0, left - 0.7 * width)
    return top <= y <= top + min(1, 2.4 * height) and left <= x <= left + min(1, 2.4 * width)
