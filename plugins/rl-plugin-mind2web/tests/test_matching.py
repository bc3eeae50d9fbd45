"""Element, operation and step of Mind2Web, on values computed by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.benchmark import measure, summarize
from rl_plugin_mind2web.matching import Match, match, token_f1
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
        (click((0.4004, 0.225)), click(), False, 1),  # only the edges are rounded
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
    same = pytest.approx(f1)  # no value has a word of punctuation
    assert found == Match(element=element, operation_f1=same, plain_f1=same)
    assert found.step is (element and f1 == 1)


def test_edges_of_the_target_have_three_decimals() -> None:
    step = recorded(click(), boxes=((0.2, 0.1, 0.05, 0.3004),))
    assert match(click((0.4, 0.225)), step).element
    assert not match(click((0.4002, 0.225)), step).element


def test_f1_of_empty_texts() -> None:
    assert (token_f1("", " "), token_f1("a", ""), token_f1("", "a")) == (1, 0, 0)


@pytest.mark.parametrize(
    ("predicted", "reference", "f1", "plain"),
    [
        ("10 12", "10 - 12", 6 / 7, 1.0),
        ("10-12", "10 - 12", 2 / 6, 2 / 5),  # a mark within a word stays
        ("-", "", 2 / 3, 1.0),
        ("a -- b", "a b", 6 / 7, 6 / 7),  # two marks are a word
        ("a & b", "a b", 6 / 7, 1.0),
    ],
)
def test_words_of_punctuation_count_as_in_seeclick_or_not_as_in_mind2web(
    predicted: str, reference: str, f1: float, plain: float
) -> None:
    step = recorded(valued("TYPE", reference))
    found = match(valued("TYPE", predicted), step)
    assert (found.operation_f1, found.plain_f1) == (pytest.approx(f1), pytest.approx(plain))
    metrics = summarize(measure([parse(ACTIONS.render(valued("TYPE", predicted)), ACTIONS)], [step]))
    assert (metrics["step"], metrics["plain_f1"], metrics["plain_step"]) == (0, pytest.approx(plain), plain == 1)


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


def test_metrics_equal_those_of_plain_loops() -> None:
    numbers = random.Random(0)
    steps, predicted = [], []
    for row in range(200):
        reference = random_action(numbers)
        steps.append(recorded(reference, row_id=str(row), episode_id=str(int(row**0.7))))
        predicted.append(numbers.choice([None, reference, random_action(numbers), random_action(numbers)]))
    texts = ["I click." if action is None else ACTIONS.render(action) for action in predicted]
    metrics = summarize(measure([parse(text, ACTIONS) for text in texts], steps))
    elements = [action is not None and action.position != (0.5, 0.225) for action in predicted]
    f1s = [slow_f1(action, step.action) for action, step in zip(predicted, steps, strict=True)]
    right = [element and f1 == 1 for element, f1 in zip(elements, f1s, strict=True)]
    episodes = [
        [row for row in range(200) if steps[row].episode_id == id] for id in {step.episode_id for step in steps}
    ]
    classes = [[row for row in range(200) if steps[row].action.name == name] for name in ("CLICK", "TYPE", "SELECT")]
    assert metrics["element"] == pytest.approx(sum(elements) / 200)
    assert metrics["step"] == pytest.approx(sum(right) / 200)
    assert metrics["operation_f1"] == pytest.approx(mean_of_means(f1s, classes))
    assert metrics["macro/element"] == pytest.approx(mean_of_means(elements, episodes))
    assert metrics["macro/operation_f1"] == pytest.approx(mean_of_means(f1s, episodes))
    assert metrics["macro/step"] == pytest.approx(mean_of_means(right, episodes))
    whole = [all(right[row] for row in rows) for rows in episodes]
    assert metrics["episode_success"] == pytest.approx(sum(whole) / len(whole))
    assert 0 < metrics["step"] < 1
    assert metrics["step"] != pytest.approx(metrics["macro/step"])


def random_action(numbers: random.Random) -> Action:
    name = numbers.choice(["CLICK", "TYPE", "SELECT"])
    value = None if name == "CLICK" else numbers.choice(["New York", "new york", "york", "paris"])
    return Action(name=name, value=value, position=(numbers.choice([0.1, 0.25, 0.5]), 0.225))


def slow_f1(predicted: Action | None, reference: Action) -> float:
    """Twice the product of precision and recall by their sum, of the words with the name as the first one."""
    if predicted is None:
        return 0
    given, wanted = ({each.name, *(each.value or "").lower().split()} for each in (predicted, reference))
    precision, recall = (sum(word in wanted for word in given) / len(part) for part in (given, wanted))
    return 2 * precision * recall / (precision + recall) if precision else 0


def mean_of_means(values: Sequence[float], parts: Sequence[Sequence[int]]) -> float:
    return sum(sum(values[row] for row in rows) / len(rows) for rows in parts) / len(parts)


def test_operations_that_do_not_occur_leave_the_mean_alone() -> None:
    metrics = summarize(measure([parse(ACTIONS.render(click()), ACTIONS)], [recorded(click())]))
    assert metrics["operation_f1"] == 1
    assert "select_f1" not in metrics
    assert summarize([]) == {}
