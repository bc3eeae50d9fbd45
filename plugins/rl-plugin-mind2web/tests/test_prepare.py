"""Prepared files of Mind2Web: rows, history, memory and counts, exactly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from recorded_episodes import label, mind2web_action, mind2web_episode, write_labels, write_mind2web
from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.dataset import PrepareConfig, prepare
from rl_plugin_mind2web.environment import action_reward
from rlcore.errors import DataError
from rlcore_gui.actions import Action
from rlcore_gui.prepare import files
from rlcore_gui.steps import GuiStep


def prepared_steps(folder: Path, *sources: Path, **changes: Any) -> tuple[list[GuiStep], Mapping[str, object]]:
    """The steps of the written file, and the summary of the command."""
    names = {"images": "images", "out": "out.parquet"}
    defaults: dict[str, Any] = {key: str(folder / name) for key, name in names.items()}
    defaults["source"] = [str(source) for source in sources]
    summary = prepare(PrepareConfig(**{**defaults, **changes}))
    return [step for episode in files.read(folder / "out.parquet") for step in episode], summary


def operation(name: str, value: str = "", original: str | None = None) -> dict[str, str]:
    return {"op": name, "original_op": original or name, "value": value}


def test_rows_have_the_operation_and_the_box_relative_to_the_screenshot(tmp_path: Path) -> None:
    actions = [
        mind2web_action("a"),
        mind2web_action("b", operation=operation("TYPE", "don't")),
        mind2web_action("c", operation=operation("SELECT", "2 hours")),
        mind2web_action("d", operation=operation("CLICK", original="HOVER")),
    ]
    source = write_mind2web(tmp_path, [mind2web_episode("e-1", actions)])
    found, summary = prepared_steps(tmp_path, source)
    place = (30 / 90, 50 / 200)
    assert [step.action for step in found] == [
        Action(name="CLICK", position=place),
        Action(name="TYPE", value="don't", position=place),
        Action(name="SELECT", value="2 hours", position=place),
        Action(name="CLICK", position=place),
    ]
    assert found[0].boxes == ((20 / 200, 10 / 90, 60 / 200, 40 / 90),)
    assert found[0].image == tmp_path / "images/e-1-a.jpg"
    assert (found[0].group, found[0].task, found[0].image_size) == ("train", "find a photographer", (90, 200))
    assert found[3].source["original_operation"] == "HOVER"
    assert found[2].source["action_repr"] == "[button]  Element 2 -> CLICK"
    assert (found[0].source["website"], found[0].source["subdomain"]) == ("thumbtack", None)
    assert [(step.is_first, step.is_last) for step in found] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    assert (summary["rows"], summary["steps"]) == (4, 4)


def test_steps_that_cannot_be_rows_stay_in_the_history_with_their_reason(tmp_path: Path) -> None:
    box = {"x": 10, "y": 20, "width": 40, "height": 60}
    cases: dict[str | None, dict[str, Any]] = {
        None: {},
        "no box": {"bbox": None},
        "empty box": {"bbox": {**box, "width": 0}},
        "box without numbers": {"bbox": {**box, "x": "left"}},
        "box outside of the screenshot": {"bbox": {**box, "y": 500}},
        "box smaller than a coordinate can point at": {"bbox": {**box, "x": 10.01, "width": 0.001}},
        "unknown action": {"operation": operation("DRAG")},
        "TYPE without a value": {"operation": operation("TYPE")},
    }
    actions = [mind2web_action(f"u{number}", **changes) for number, changes in enumerate(cases.values())]
    del actions[1]["bbox"]
    actions += [mind2web_action(None), "no action"]
    found, summary = prepared_steps(tmp_path, write_mind2web(tmp_path, [mind2web_episode(5, actions)]))
    assert pq.read_table(tmp_path / "out.parquet")["skipped"].to_pylist() == [*cases, "no image", "no image"]
    assert found[1].action == Action(name="CLICK")
    assert found[1].image is None
    assert (found[0].is_first, found[0].is_last, found[0].next_row_id) == (True, True, None)
    assert (summary["rows"], summary["steps"]) == (1, 10)
    assert "no box: 1 (mind2web/5/1)" in str(summary["not rows, kept in the history"])


def test_boxes_beyond_the_screenshot_are_cut(tmp_path: Path) -> None:
    action = mind2web_action("a", bbox={"x": 60, "y": -10, "width": 60, "height": 30})
    found, summary = prepared_steps(tmp_path, write_mind2web(tmp_path, [mind2web_episode("e", [action])]))
    assert found[0].boxes == ((0.0, pytest.approx(60 / 90), 20 / 200, pytest.approx(30 / 90)),)
    assert found[0].action.position == pytest.approx((75 / 90, 0.05))
    assert "which were cut: 1" in str(summary["notes"])


def test_memory_is_joined_by_the_episode_and_the_position_of_the_action(tmp_path: Path) -> None:
    actions = [mind2web_action(uid) for uid in "abc"]
    source = write_mind2web(tmp_path, [mind2web_episode("e", actions), mind2web_episode(7, actions[:2])])
    labels = write_labels(tmp_path, [label("e", 0, "one"), label("e", 1, "two"), label("7", 0, "three")])
    found, summary = prepared_steps(tmp_path, source, labels=str(labels), memory=True)
    assert [step.memory for step in found] == [None, "one", "two", None, "three"]
    assert summary["rows with a memory"] == "3 of 3 after the first step"


def test_group_is_the_split_of_the_file(tmp_path: Path) -> None:
    sources = [
        write_mind2web(tmp_path, [mind2web_episode(name, [mind2web_action("a")])], name=f"mind2web_data_{name}.json")
        for name in ("test_task", "test_website")
    ]
    found, summary = prepared_steps(tmp_path, *sources)
    assert [step.group for step in found] == ["test_task", "test_website"]
    assert summary["  test_task"] == "1 row of 1 step in 1 episode"


def test_items_that_are_no_episodes_are_counted(tmp_path: Path) -> None:
    good = mind2web_episode("e", [mind2web_action("a")])
    broken: list[Any] = [{**good, "annotation_id": None}, {**good, "actions": []}]
    _, summary = prepared_steps(tmp_path, write_mind2web(tmp_path, [good, *broken]))
    assert "no annotation_id: 1" in str(summary["not episodes"])
    assert "no actions: 1" in str(summary["not episodes"])


def test_real_step_is_prepared(tmp_path: Path) -> None:
    if "RLCORE_DATA" not in os.environ:
        pytest.skip("RLCORE_DATA is not set")
    folder = Path(os.environ["RLCORE_DATA"]) / "mind2web"
    found, summary = prepared_steps(tmp_path, folder / "mind2web_data_one_step.json", images=str(folder / "images"))
    (step,) = found
    assert summary["rows"] == 1
    assert (step.image_size, step.action.name, step.source["website"]) == ((1280, 2529), "CLICK", "thumbtack")
    assert step.action.position == pytest.approx(((587 + 93 / 2) / 1280, (596.59375 + 54 / 2) / 2529))
    assert action_reward.score(ACTIONS.render(step.action), step).value == 1


def test_real_tasks_without_screenshots_have_no_rows(tmp_path: Path) -> None:
    if "RLCORE_DATA" not in os.environ:
        pytest.skip("RLCORE_DATA is not set")
    folder = Path(os.environ["RLCORE_DATA"]) / "mind2web"
    with pytest.raises(DataError, match="no image: 407"):
        prepared_steps(tmp_path, folder / "train_50tasks.json", images=str(folder / "images"))
