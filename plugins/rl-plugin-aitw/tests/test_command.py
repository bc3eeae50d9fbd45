"""The command line of ``rlcore data prepare aitw`` and ``show``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands_here import run_here
from recorded_episodes import aitw_step, label, write_aitw, write_labels


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten episodes of two steps with labels, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_aitw(tmp_path, {"general": [[aitw_step(number, index) for index in range(2)] for number in range(10)]})
    write_labels(tmp_path, [label(str(number), 0, "Opened the clock.") for number in range(10)])
    return tmp_path


def test_arguments_of_the_earlier_script_are_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = """--aitw_data_path data.json --imgs_dir images --thinking_results_path labels.jsonl
        --output_path old/full_data.parquet --output_subset_path old/subset_data.parquet --subset_size 4
        --using_memory_input"""
    assert run_here(monkeypatch, "data", "prepare", "aitw", *arguments.split()) == 0
    options = """source=data.json images=images labels=labels.jsonl out=new/full_data.parquet
        subset=new/subset_data.parquet subset_size=4 memory=true"""
    capsys.readouterr()
    assert run_here(monkeypatch, "data", "prepare", "aitw", *options.split(), "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] == "16 rows to new/full_data.parquet"
    for name in ("full_data.parquet", "subset_data.parquet"):
        old, new = (pq.read_table(folder / way / name) for way in ("old", "new"))
        assert old.equals(new)
        assert set(old["memory"].to_pylist()) == {None, "Opened the clock."}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--using_memory_input", "from command line: --using_memory_input\n      memory needs labels"),
        ("--subset_size none", "--subset_size none"),
        ("--imgs_dirs x", "did you mean '--imgs_dir'?"),
        ("--thinking_results_path none.jsonl", "the pseudo-labels cannot be read"),
    ],
)
def test_wrong_arguments_end_with_status_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    message: str,
) -> None:
    words = f"data prepare aitw --aitw_data_path data.json --imgs_dir images --output_path a.parquet {arguments}"
    assert run_here(monkeypatch, *words.split()) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "a.parquet").exists()


def test_strict_mode_ends_with_status_2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "images/3/3_1.png").unlink()
    words = ["data", "prepare", "aitw", "source=data.json", "images=images", "out=a.parquet"]
    assert run_here(monkeypatch, *words, "strict=true") == 2
    assert run_here(monkeypatch, *words) == 0


def test_prepared_files_and_tasks_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(monkeypatch, "data", "prepare", "aitw", "source=data.json", "images=images", "out=a.parquet") == 0
    capsys.readouterr()
    assert run_here(monkeypatch, "data", "show", "a.parquet", "-n", "1") == 0
    shown = capsys.readouterr().out
    assert "row_id: aitw/0/0" in shown
    assert "position: [0.5, 0.25]" in shown
    assert "[image " in shown
    assert run_here(monkeypatch, "data", "show", "aitw", "train=a.parquet", "-n", "1") == 0
    shown = capsys.readouterr().out
    assert 'Task: open "Clock"' in shown
    assert "[image " in shown
