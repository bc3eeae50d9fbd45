"""Metrics of AITW on a handful of steps computed by hand."""

from __future__ import annotations

import pytest
from rl_plugin_aitw.actions import ACTIONS
from rl_plugin_aitw.benchmark import measure, summarize
from rlcore_gui.actions import Action
from rlcore_gui.answers import parse
from rlcore_gui.steps import GuiStep

TAP = Action(name="CLICK", position=(0.5, 0.5))
AWAY = Action(name="CLICK", position=(0.9, 0.9))
DOWN, UP = Action(name="SCROLL DOWN"), Action(name="SCROLL UP")


def step(row: int, episode: str, group: str, action: Action) -> GuiStep:
    return GuiStep(
        row_id=str(row),
        episode_id=episode,
        step_index=row,
        group=group,
        task="t",
        image=None,
        image_size=None,
        action=action,
    )


def typed(text: str) -> Action:
    return Action(name="TYPE", value=text)


STEPS = [
    (step(0, "a", "general", TAP), TAP),
    (step(1, "a", "general", TAP), AWAY),
    (step(2, "a", "general", TAP), DOWN),
    (step(3, "b", "general", typed("new york")), typed("York")),
    (step(4, "c", "install", DOWN), UP),
    (step(5, "c", "install", DOWN), DOWN),
]


def test_measures_are_means_over_the_steps_that_have_them() -> None:
    answers = [parse(ACTIONS.render(predicted), ACTIONS) for _, predicted in STEPS]
    metrics = summarize(measure(answers, [each for each, _ in STEPS]))
    assert metrics["general/action"] == pytest.approx(2 / 4)
    assert metrics["install/action"] == 1
    assert metrics["action"] == pytest.approx(0.75)  # the mean of the groups
    assert metrics["micro/action"] == pytest.approx(4 / 6)
    assert metrics["macro/action"] == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert metrics["strict_action"] == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert metrics["general/click"] == pytest.approx(1 / 3)
    assert metrics["general/both_click"] == pytest.approx(1 / 2)
    assert metrics["general/type"] == 1
    assert (metrics["text"], metrics["strict_text"]) == (1, 0)
    assert (metrics["scroll"], metrics["strict_scroll"]) == (1, 0.5)
    assert metrics["general/episode_success"] == 0.5
    assert metrics["general/strict_episode_success"] == 0
    assert (metrics["readable"], metrics["format"]) == (1, 0)
    assert "install/click" not in metrics


@pytest.mark.parametrize(("answer", "text"), [("new york city", 1), ("NEW", 1), ("paris", 0), ("", 0), (None, 0)])
def test_official_text_accuracy_accepts_parts_but_not_nothing(answer: str | None, text: float) -> None:
    written = "I type." if answer is None else ACTIONS.render(typed(answer))
    (scores,) = measure([parse(written, ACTIONS)], [step(0, "a", "general", typed("new york"))])
    assert scores.values["text"] == text
    assert scores.values["readable"] == (answer is not None)


def test_no_steps_have_no_metrics() -> None:
    assert summarize([]) == {}
