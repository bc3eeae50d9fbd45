"""The parts that need no browser."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rl_plugin_miniwob.actions import ACTIONS
from rl_plugin_miniwob.config import DataConfig
from rl_plugin_miniwob.dataset import Pages
from rl_plugin_miniwob.environment import check
from rl_plugin_miniwob.page import Element
from rl_plugin_miniwob.prompts import line
from rl_plugin_miniwob.reward import page_reward
from rlcore.errors import DataError
from rlcore.testing import make_trajectory
from rlcore.types import Task
from rlcore_gui.actions import Action


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "CLICK", "value": null, "position": [0.500, 0.250]}',
        '{"action": "TYPE", "value": "text", "position": [0.500, 0.250]}',
        '{"action": "SELECT", "value": "text", "position": [0.500, 0.250]}',
        '{"action": "TYPE", "value": "text", "position": null}',
        '{"action": "SCROLL DOWN", "value": null, "position": null}',
        '{"action": "PRESS ENTER", "value": null, "position": null}',
        '{"action": "STATUS TASK COMPLETE", "value": null, "position": null}',
    ],
)
def test_actions_of_mind2web_and_aitw_are_read_and_written_alike(text: str) -> None:
    assert ACTIONS.render(ACTIONS.parse(text)) == text


def test_element_is_a_line_that_an_action_can_copy() -> None:
    shown = line(Element(kind="button", text="OK", notes=(), position=(1 / 3, 0.5)))
    assert shown == 'button "OK" [0.333, 0.500]'
    assert shown.endswith(ACTIONS.render(Action(name="CLICK", position=(1 / 3, 0.5))).partition(": [")[2][:-1])
    box = Element(kind="checkbox", text="", notes=("#a", "checked"), position=(0.0, 1.0))
    assert line(box) == "checkbox #a checked [0.000, 1.000]"


@pytest.mark.parametrize(
    ("metrics", "value", "raw"), [({}, 0, 0), ({"step_reward": -1.0}, 0, -1), ({"step_reward": 0.5}, 0.5, 0.5)]
)
def test_negative_rewards_are_zero_and_a_component(metrics: dict[str, float], value: float, raw: float) -> None:
    result = page_reward(make_trajectory("1", metrics=metrics), Task(id="1", messages=()))
    assert (result.value, dict(result.components)) == (value, {"raw": raw})


def test_pages_take_turns_and_splits_share_no_seed() -> None:
    data = Pages(DataConfig(pages=["click-test", "focus-text"], train=4, evaluation=2))
    fields = [dict(task.fields) for split in ("train", "evaluation") for task in data.tasks(split)]
    assert [one["page"] for one in fields] == ["click-test", "focus-text"] * 3
    assert [one["seed"] for one in fields] == [0, 1, 2, 3, 2**31, 2**31 + 1]


def test_unknown_page_names_a_similar_one() -> None:
    with pytest.raises(DataError, match="click-test"):
        Pages(DataConfig(pages=["click-tset"]))


def test_missing_chromium_rejects_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("rl_plugin_miniwob.chromium.MACOS", "/absent")
    nothing: Any = SimpleNamespace()
    (finding,) = check(nothing, nothing)
    assert finding.status == "fail"
    assert "Chromium" in finding.text
