"""Prepared files of AITW: rows, history, memory and counts, exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from recorded_episodes import aitw_step, label, screenshot, write_aitw, write_labels, written
from rl_plugin_aitw.actions import ACTIONS
from rl_plugin_aitw.dataset import PrepareConfig, prepare
from rl_plugin_aitw.environment import action_reward
from rlcore.errors import DataError
from rlcore_gui.actions import Action
from rlcore_gui.prepare import files
from rlcore_gui.steps import GuiStep

SCROLL = {"action_type_text": "scroll down", "touch": [0.5, 0.8], "lift": [0.5, 0.2]}
TYPED = {"action_type_id": 3, "action_type_text": "type", "touch": [-1.0, -1.0], "lift": [-1.0, -1.0]}


def prepared_steps(folder: Path, **changes: Any) -> tuple[list[GuiStep], Mapping[str, object]]:
    """The steps of the written file, and the summary of the command."""
    defaults = {
        "source": str(folder / "data.json"),
        "images": str(folder / "images"),
        "out": str(folder / "out.parquet"),
    }
    summary = prepare(PrepareConfig(**{**defaults, **changes}))
    return [step for episode in files.read(folder / "out.parquet") for step in episode], summary


def test_rows_have_the_actions_boxes_and_places_of_the_source(tmp_path: Path) -> None:
    boxes = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    steps = [
        aitw_step(7, 0, annot_position=boxes, touch=[0.5, 0.25], lift=[0.51, 0.25]),
        aitw_step(7, 1, **SCROLL),
        aitw_step(7, 2, **TYPED, type_text="don't"),
        aitw_step(7, 3, action_type_id=10, action_type_text="status task complete", annot_position=[]),
    ]
    write_aitw(tmp_path, {"general": [steps]})
    found, summary = prepared_steps(tmp_path)
    assert [step.action for step in found] == [
        Action(name="CLICK", position=(0.505, 0.25)),
        Action(name="SCROLL DOWN"),
        Action(name="TYPE", value="don't"),
        Action(name="STATUS TASK COMPLETE"),
    ]
    first, last = found[0], found[3]
    assert first.boxes == ((0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8))
    assert (first.episode_id, first.step_index, first.group, first.task) == ("7", 0, "general", 'open "Clock"')
    assert (first.image, first.image_size) == (tmp_path / "images/7/7_0.png", (90, 200))
    assert (first.source["touch"], first.source["lift"]) == ((0.5, 0.25), (0.51, 0.25))
    assert first.memory is None
    assert [step.row_id for step in found] == [f"aitw/7/{index}" for index in range(4)]
    assert [step.next_row_id for step in found] == ["aitw/7/1", "aitw/7/2", "aitw/7/3", None]
    assert [(step.is_first, step.is_last) for step in found] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    assert last.boxes == ()
    assert (summary["rows"], summary["steps"], summary["episodes"]) == (4, 4, 1)
    assert all(ACTIONS.parse(ACTIONS.render(step.action)) for step in found)


def test_steps_without_image_stay_in_the_history_and_are_reported(tmp_path: Path) -> None:
    steps = [aitw_step("e", index) for index in range(4)]
    write_aitw(tmp_path, {"general": [steps]}, missing=["e/e_0", "e/e_3"])
    found, summary = prepared_steps(tmp_path)
    assert [step.image is None for step in found] == [True, False, False, True]
    assert [step.action.name for step in found] == ["CLICK"] * 4
    assert [(step.is_first, step.is_last) for step in found] == [
        (False, False),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert [step.next_row_id for step in found] == [None, "aitw/e/2", None, None]
    assert (summary["rows"], summary["steps"]) == (2, 4)
    assert summary["not rows, kept in the history"] == "image missing: 2 (aitw/e/0, aitw/e/3)"
    assert pq.read_table(tmp_path / "out.parquet")["skipped"].to_pylist() == [
        "image missing",
        None,
        None,
        "image missing",
    ]


def test_strict_mode_writes_nothing_and_names_the_steps(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0), aitw_step("e", 1)]]}, missing=["e/e_1"])
    with pytest.raises(DataError) as error:
        prepared_steps(tmp_path, strict=True)
    assert "image missing: 1 (aitw/e/1)" in str(error.value)
    assert sorted(os.listdir(tmp_path)) == ["data.json", "images"]


def test_every_unusable_step_has_its_reason(tmp_path: Path) -> None:
    cases = {
        None: {},
        "no image": {"img_filename": None},
        "image missing": {"img_filename": "none"},
        "image name too long": {"img_filename": "x" * 300},
        "image outside of its folder": {"img_filename": "../data"},
        "unknown action": {"action_type_id": 99, "action_type_text": "dance"},
        "click off the screen": {"touch": [-1.0, -1.0], "lift": [-1.0, -1.0]},
        "coordinates in pixels": {"touch": [540, 300], "lift": [540, 300]},
        "box without numbers": {"annot_position": [0.1, 0.2, None, 0.4]},
        "no task": {"goal": " "},
    }
    steps = [aitw_step("e", index, **changes) for index, changes in enumerate(cases.values())]
    steps += [aitw_step("e", 10, annot_position=[100, 200, 50, 60]), "no step"]
    write_aitw(tmp_path, {"general": [steps]}, missing=["none"])
    found, _ = prepared_steps(tmp_path)
    reasons = pq.read_table(tmp_path / "out.parquet")["skipped"].to_pylist()
    assert reasons == [*cases, "coordinates in pixels", "no image"]
    assert [step.image is None for step in found] == [reason is not None for reason in reasons]
    assert [step.step_index for step in found] == list(range(12))


def test_unusual_values_are_read(tmp_path: Path) -> None:
    steps = [
        aitw_step(7, "0", action_type_id="4", action_type_text="Scroll_Up"),
        aitw_step("7", 1, action_type_text="", touch=[0.5, 0.2], lift=[0.5, 0.9]),
        aitw_step("7", 2, action_type_text=None, touch=["0.5", "0.5"]),
        aitw_step(7, 3, action_type_id=3, action_type_text="type", type_text=42, touch=None, lift=[]),
        aitw_step(7, 4, annot_position=[[0.1, 0.2, 0.3, 0.4]]),
        aitw_step(7, 5, annot_position=None),
        aitw_step(7, 6, annot_position=[0.1, 0.2, 0.3, 0.4, 0.5]),
    ]
    steps += [
        aitw_step(7, 7, action_type_id=5, action_type_text="press home"),
        aitw_step(7, 8, action_type_id=8, action_type_text="scroll left", annot_position=[0.1, 0.2, 0, 0.4]),
    ]
    del steps[0]["type_text"]
    write_aitw(tmp_path, {"general": [steps]})
    found, summary = prepared_steps(tmp_path)
    names = ["SCROLL UP", "SCROLL UP", "SCROLL DOWN", "TYPE", "CLICK", "CLICK", "CLICK", "PRESS BACK", "SCROLL LEFT"]
    assert [step.action.name for step in found] == names
    assert found[3].action.value == "42"
    assert found[3].source["touch"] is None
    assert [len(step.boxes) for step in found] == [1, 1, 1, 1, 1, 0, 1, 1, 1]
    assert "number and text name different actions, so the number counts: 1" in str(summary["notes"])
    assert "boxes without height or width: 1" in str(summary["notes"])
    assert "clicks on screens without boxes, which only their distance can match: 1" in str(summary["notes"])
    assert "incomplete last box, which was dropped: 1" in str(summary["notes"])


def test_pixels_become_relative_coordinates(tmp_path: Path) -> None:
    step = aitw_step("e", 0, touch=[45, 50], lift=[45, 50], annot_position=[20, 9, 40, 18])
    write_aitw(tmp_path, {"general": [[step, aitw_step("e", 1, **TYPED, annot_position=[])]]})
    found, _ = prepared_steps(tmp_path, coordinates="pixels")
    assert found[0].action.position == (0.5, 0.25)
    assert found[0].boxes == ((0.1, 0.1, 0.2, 0.2),)
    assert found[1].source["touch"] == (-1.0, -1.0)


def test_items_that_are_no_episodes_are_counted(tmp_path: Path) -> None:
    good = [aitw_step("e", 0)]
    write_aitw(tmp_path, {"general": [good, [], [aitw_step("f", 0), aitw_step("g", 1)]]})
    tree = json.loads((tmp_path / "data.json").read_text(encoding="utf-8"))
    written(tmp_path / "data.json", {**tree, "single": [None, 3, {"steps": [aitw_step("e", 0)]}], "install": []})
    found, summary = prepared_steps(tmp_path)
    assert [step.row_id for step in found] == ["aitw/e/0", "aitw/e~2/0"]
    assert "not a list of steps: 3" in str(summary["not episodes"])
    assert "several episode ids: 1 (data, episode 3)" in str(summary["not episodes"])
    assert "occur again" in str(summary["notes"])
    assert summary["  single"] == "1 row of 1 step in 1 episode"


def test_steps_out_of_order_are_numbered_again(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step("e", 3), aitw_step("e", 3), aitw_step("e", None)]]})
    labels = str(write_labels(tmp_path, [label("e", index, f"step {index}") for index in range(4)]))
    found, summary = prepared_steps(tmp_path, labels=labels, memory=True)
    assert [step.step_index for step in found] == [0, 1, 2]
    assert [step.memory for step in found] == [None, "step 0", "step 1"]
    assert "numbered again: 1 (e)" in str(summary["notes"])


def test_memory_is_the_summary_of_the_step_before(tmp_path: Path) -> None:
    steps = [aitw_step(12, index) for index in range(4)]
    write_aitw(tmp_path, {"general": [steps], "single": [[aitw_step(13, 0)]]}, missing=["12/12_1"])
    lines = [
        label("12", 0, "first"),
        label(12, 1, "second"),
        label(12, "2"),
        label(12, 3, "unused"),
        label(9, 0, "other"),
    ]
    labels = str(write_labels(tmp_path, lines))
    found, summary = prepared_steps(tmp_path, labels=labels, memory=True)
    assert [step.memory for step in found] == [None, "first", "second", None, None]
    assert summary["rows with a memory"] == "1 of 2 after the first step"
    assert summary["rows with a label"] == "2 of 4 (1 null)"
    assert summary["labels of no step"] == 1
    without, _ = prepared_steps(tmp_path, labels=labels, overwrite=True)
    assert [step.memory for step in without] == [None] * 5
    assert without[0].source["label"]["history_summary"] == "first"


def test_memory_without_a_file_of_labels_is_an_error(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step(1, 0), aitw_step(1, 1)]]})
    with pytest.raises(ValueError, match="memory needs labels"):
        prepared_steps(tmp_path, labels="", memory=True)


def test_labels_of_other_episodes_are_an_error(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step(1, 0), aitw_step(1, 1)]]})
    labels = str(write_labels(tmp_path, [label("other", 0, "a"), label("other", 1, "b")]))
    with pytest.raises(DataError) as error:
        prepared_steps(tmp_path, labels=labels, memory=True)
    assert "no pseudo-label belongs to a step" in str(error.value)
    assert "('other', 0)" in str(error.value)
    assert not (tmp_path / "out.parquet").exists()


def test_strict_mode_rejects_null_labels(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step(1, 0), aitw_step(1, 1), aitw_step(1, 2)]]})
    labels = str(write_labels(tmp_path, [label(1, 0, "a"), label(1, 1)]))
    with pytest.raises(DataError, match="labels: 1 null"):
        prepared_steps(tmp_path, labels=labels, memory=True, strict=True)


def test_subset_holds_out_whole_episodes(tmp_path: Path) -> None:
    domains = {
        name: [[aitw_step(f"{name}{number}", index) for index in range(3)] for number in range(10)]
        for name in ("general", "single")
    }
    write_aitw(tmp_path, domains)
    subset = tmp_path / "new/subset.parquet"
    train, summary = prepared_steps(tmp_path, subset=str(subset), subset_size=12, seed=3)
    held = [step for episode in files.read(subset) for step in episode]
    assert not {step.episode_id for step in train} & {step.episode_id for step in held}
    assert (len(train), len(held)) == (48, 12)
    assert {name: sum(step.group == name for step in held) for name in domains} == {"general": 6, "single": 6}
    assert (files.origin(subset).held_out, files.origin(tmp_path / "out.parquet").held_out) == (True, False)
    assert summary["held out"] == f"12 rows in {subset}"
    prepared_steps(tmp_path, subset=str(subset), subset_size=12, seed=3, overwrite=True)
    assert [step for episode in files.read(subset) for step in episode] == held


def test_same_episode_in_two_domains_is_held_out_as_a_whole(tmp_path: Path) -> None:
    first = {name: [[aitw_step(f"{name}{n}", 0)] for n in range(12)] for name in ("general", "single")}
    again = [[aitw_step(f"general{n}", index) for index in range(2)] for n in range(12)]
    write_aitw(tmp_path, {**first, "install": again})
    subset = tmp_path / "subset.parquet"
    for seed in range(8):
        train, _ = prepared_steps(tmp_path, subset=str(subset), subset_size=10, seed=seed, overwrite=True)
        held = [step for episode in files.read(subset) for step in episode]
        parts = [{step.episode_id.partition("~")[0] for step in part} for part in (train, held)]
        assert parts[0]
        assert parts[1]
        assert not parts[0] & parts[1]
        assert len(train) + len(held) == 48


def test_columns_have_fixed_types_whatever_the_first_rows_contain(tmp_path: Path) -> None:
    nothing = aitw_step("e", 0, annot_position=[], action_type_id=6, action_type_text="press home", type_text=None)
    write_aitw(tmp_path, {"general": [[nothing]]})
    prepared_steps(tmp_path)
    first = pq.read_schema(tmp_path / "out.parquet")
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0), aitw_step("e", 1, **TYPED, type_text="a")]]})
    prepared_steps(tmp_path, overwrite=True)
    assert pq.read_schema(tmp_path / "out.parquet").equals(first)


def test_rows_are_written_in_groups_of_whole_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_gui.prepare.pipeline.CHUNK", 4)
    write_aitw(tmp_path, {"general": [[aitw_step(number, index) for index in range(3)] for number in range(5)]})
    found, _ = prepared_steps(tmp_path)
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [6, 6, 3]
    assert [step.row_id for step in found] == [f"aitw/{number}/{index}" for number in range(5) for index in range(3)]


def test_failure_keeps_the_earlier_file(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0)]]})
    prepared_steps(tmp_path)
    before = (tmp_path / "out.parquet").read_bytes()
    with pytest.raises(DataError, match="already exists"):
        prepared_steps(tmp_path)
    (tmp_path / "data.json").write_text('{"general": [[', encoding="utf-8")
    with pytest.raises(DataError, match="line 1"):
        prepared_steps(tmp_path, overwrite=True)
    assert (tmp_path / "out.parquet").read_bytes() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": "out.jsonl"}, "written as parquet"),
        ({"subset": "OUT"}, "need different files"),
        ({"subset": "images/../out.parquet"}, "need different files"),
        ({"out": f"{'n' * 300}.parquet"}, "cannot be written"),
        ({"out": "a\0.parquet"}, "cannot be written"),
        ({"source": [f"{'n' * 300}.json"]}, "the data cannot be read"),
        ({"source": ["a\0.json"]}, "the data cannot be read"),
        ({"images": "none"}, "must be in a folder"),
        ({"labels": "none.jsonl"}, "cannot be read"),
        ({"source": ["none.json"]}, "cannot be read"),
        ({"subset": "subset.parquet"}, "both have episodes"),
    ],
)
def test_bad_options_are_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0)]]})
    changes = {name: str(tmp_path / "out.parquet") if value == "OUT" else value for name, value in changes.items()}
    with pytest.raises(DataError, match=message):
        prepared_steps(tmp_path, **changes)
    assert sorted(os.listdir(tmp_path)) == ["data.json", "images"]


def test_prepared_file_may_have_a_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0)]]})
    assert prepared_steps(tmp_path, out="out.parquet")[1]["rows"] == 1


def test_no_usable_step_is_an_error(tmp_path: Path) -> None:
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0)]]}, missing=["e/e_0"])
    screenshot(tmp_path / "images", "other.png")
    with pytest.raises(DataError, match="no step can be used"):
        prepared_steps(tmp_path)


def test_real_episode_is_prepared(tmp_path: Path) -> None:
    if "RLCORE_DATA" not in os.environ:
        pytest.skip("RLCORE_DATA is not set")
    folder = Path(os.environ["RLCORE_DATA"]) / "aitw"
    found, summary = prepared_steps(
        tmp_path, source=[str(folder / "aitw_data_sample.json")], images=str(folder / "images")
    )
    assert summary["rows"] == summary["steps"] == len(found) == 4
    assert [step.action.name for step in found][:2] == ["PRESS HOME", "SCROLL DOWN"]
    assert all(step.image_size == (270, 600) and step.group == "googleapps" for step in found)
    assert all(action_reward.score(ACTIONS.render(step.action), step).value == 1 for step in found)


def test_second_process_finds_the_same_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_gui.prepare.pipeline.CHUNK", 8)
    domains = {"general": [[aitw_step(number, index) for index in range(4)] for number in range(12)]}
    write_aitw(tmp_path, domains, missing=["3/3_1"])
    alone, _ = prepared_steps(tmp_path)
    monkeypatch.setattr("rlcore_gui.prepare.pipeline.FEW_BYTES", 0)
    assert prepared_steps(tmp_path, overwrite=True)[0] == alone
    monkeypatch.setattr("rlcore_gui.prepare.screenshots.COMMAND", "raise SystemExit")
    assert prepared_steps(tmp_path, overwrite=True)[0] == alone


def test_second_process_runs_no_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlcore_gui.prepare.pipeline.FEW_BYTES", 0)
    (tmp_path / "struct.py").write_text("open('ran', 'w')", encoding="utf-8")
    write_aitw(tmp_path, {"general": [[aitw_step("e", 0)]]})
    assert prepared_steps(tmp_path)[1]["rows"] == 1
    assert not (tmp_path / "ran").exists()


def test_texts_that_are_no_unicode_and_huge_numbers_are_written(tmp_path: Path) -> None:
    steps = [
        aitw_step("e", 10**12, goal="open \ud800"),
        aitw_step("e", 1, **{**TYPED, "action_type_id": 3, "type_text": "\ud83d"}),
        aitw_step("e", 2, action_type_id=2**62, action_type_text="click\ud800", img_filename="\ud800"),
    ]
    write_aitw(tmp_path, {"general": [steps]}, missing=["\ud800"])
    labels = str(write_labels(tmp_path, [label("e", 1, "a \ud800")]))
    found, _ = prepared_steps(tmp_path, labels=labels)
    assert [step.task for step in found][:2] == ["open ?", 'open "Clock"']
    assert found[1].action.value == "?"
    assert found[2].image is None
