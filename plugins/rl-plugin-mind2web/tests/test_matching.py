"""Element, operation and step of Mind2Web, on values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.matching import Match, match, token_f1
from rl_plugin_mind2web.metrics import measure, summarize
from rlcore_gui.actions import Action, Point
from rlcore_gui.answers import parse
from rlcore_gui.steps import GuiStep

BOX = (0.2, 0.1, 0.05, 0.3)
"""Top 0.2, left 0.1, height 0.05, width 0.3."""
INSIDE = (0.25, 0.225)


def click(position: Point = INSIDE) -> Action:
    return Action(name="CLICK", position=position)


def valued(name: str, value: str, position: Point = INSIDE) -> Action:
    return Action(name=name, value=value, position=position)


def recorded(action: Action, **changes: Any) -> GuiStep:
    fields: dict[str, Any] = {
        **{"row_id": "1", "episode_id": "1", "step_index": 0, "group": "task", "task": "t"},
        **{"image": None, "image_size": None, "boxes": (BOX,), **changes},
    }
    return GuiStep(action=action, **fields)


@pytest.mark.parametrize(
    ("predicted", "reference", "element", "f1"),
    [
        (click(), click(), True, 1),
        (click((0.1, 0.2)), click(), True, 1),  # the edges belong to the box
        (click((0.4, 0.25)), click(), True, 1),
        (click((0.4004, 0.2504)), click(), True, 1),  # three decimals
        (click((0.401, 0.25)), click(), False, 1),
        (click((0.25, 0.199)), click(), False, 1),
        (valued("TYPE", "New York"), valued("TYPE", "new york"), True, 1),
        (valued("TYPE", "york new"), valued("TYPE", "new york"), True, 1),  # a set of words
        (valued("TYPE", "york"), valued("TYPE", "new york"), True, 0.8),
        (valued("TYPE", "paris"), valued("TYPE", "new york"), True, 0.4),
        (valued("SELECT", "new york"), valued("TYPE", "new york"), True, 2 / 3),
        (click(), valued("SELECT", "2"), True, 0),
        (valued("TYPE", ""), valued("TYPE", ""), True, 1),
        (None, click(), False, 0),
    ],
)
def test_element_and_operation(predicted: Action | None, reference: Action, element: bool, f1: float) -> None:
    found = match(predicted, recorded(reference))
    assert found == Match(element=element, operation_f1=pytest.approx(f1))
    assert found.step is (element and f1 == 1)


def test_f1_of_empty_texts() -> None:
    assert (token_f1("", " "), token_f1("a", ""), token_f1("", "a")) == (1, 0, 0)


def test_hover_and_enter_are_clicks() -> None:
    for name in ("HOVER", "enter", "click"):
        assert parse(f'{{"action": "{name}", "position": [0.25, 0.225]}}', ACTIONS).action == click()


def test_metrics_of_an_evaluation() -> None:
    pairs = [
        (recorded(click(), row_id="1", episode_id="a"), click()),
        (recorded(click(), row_id="2", episode_id="a"), click((0.9, 0.9))),
        (recorded(click(), row_id="3", episode_id="a"), click((0.9, 0.9))),
        (recorded(valued("SELECT", "2"), row_id="4", episode_id="b", group="website"), valued("SELECT", "2")),
        (recorded(valued("TYPE", "a b"), row_id="5", episode_id="c", group="website"), valued("TYPE", "a")),
    ]
    answers = [parse(ACTIONS.render(predicted), ACTIONS) for _, predicted in pairs]
    metrics = summarize(measure(answers, [step for step, _ in pairs]))
    assert metrics["element"] == pytest.approx(3 / 5)
    assert metrics["step"] == pytest.approx(2 / 5)
    assert metrics["macro/step"] == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert metrics["macro/element"] == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert metrics["operation_f1"] == pytest.approx((1 + 1 + 0.8) / 3)
    assert (metrics["click_f1"], metrics["type_f1"], metrics["select_f1"]) == (1, pytest.approx(0.8), 1)
    assert metrics["episode_success"] == pytest.approx(1 / 3)
    assert metrics["task/step"] == pytest.approx(1 / 3)
    assert metrics["groups/macro/step"] == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_operations_that_do_not_occur_leave_the_mean_alone() -> None:
    metrics = summarize(measure([parse(ACTIONS.render(click()), ACTIONS)], [recorded(click())]))
    assert metrics["operation_f1"] == 1
    assert "select_f1" not in metrics
    assert summarize([]) == {}
