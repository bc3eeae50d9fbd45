"""Bad input that a person gives, and what a run that it stops leaves behind."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore.cli import _machine_failure
from rlcore.cli.run import skipped_rows
from rlcore.config.origins import parse_toml
from rlcore.errors import ConfigError
from rlcore.run_directory import read_metrics

Call = Callable[..., Any]


def test_a_new_run_that_bad_input_stops_at_once_leaves_nothing(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "trainer.fail=input", "name=mine")
    assert done.status == 2
    assert "error: row 3 has no answer" in done.err
    assert "runs/mine is removed" in done.err
    assert not Path("runs/mine").exists()


@pytest.mark.parametrize("name", ["x" * 300, "é" * 150, '"a\\u0000b"'])
def test_a_name_that_no_folder_can_have_is_refused(rlcore: Call, name: str) -> None:
    done = rlcore("run", "-p", "toy", f"name={name}")
    assert done.status == 2
    assert "is not the name of a folder" in done.err


def test_more_tasks_a_step_than_the_data_has_are_refused_before_a_run_starts(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "trainer.tasks_per_step=100000")
    assert done.status == 2
    assert "a step takes 100000 different tasks" in done.err
    assert "command line: trainer.tasks_per_step=100000" in done.err
    assert not Path("runs").exists()


def test_what_stands_alone_and_is_no_folder_cannot_be_evaluated(rlcore: Call) -> None:
    done = rlcore("eval", "nonsense")
    assert done.status == 2
    assert "there is no run or model folder nonsense" in done.err
    done = rlcore("eval", "model.path=runs/nothing")
    assert done.status == 2
    assert "there is no run or model folder runs/nothing" in done.err


def test_nesting_without_end_is_bad_input(rlcore: Call) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse_toml("a = " + "[" * 50_000, "deep.toml")
    Path("deep.json").write_text("[" * 100_000, encoding="utf-8")
    done = rlcore("data", "show", "deep.json")
    assert done.status == 2
    assert "cannot read deep.json" in done.err


def test_damaged_records_do_not_keep_a_run_from_being_resumed(rlcore: Call) -> None:
    assert rlcore("run", "-p", "toy", "name=mine").status == 0
    run = Path("runs/mine")
    (run / "environment.json").write_text("{", encoding="utf-8")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"other": 1}\n{"step"')
    done = rlcore("run", "--resume", run, "trainer.steps=4")
    assert done.status == 0, done.err
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [1, 2, 3, 4]
    assert all(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())


def test_a_full_disk_is_bad_input_whoever_met_it() -> None:
    full = os.strerror(errno.ENOSPC)
    assert full in (_machine_failure(OSError(errno.ENOSPC, full)) or "")
    assert full in (_machine_failure(RuntimeError(f"I/O error: {full} (os error 28)")) or "")
    assert _machine_failure(FileNotFoundError(errno.ENOENT, "gone")) is None
    assert _machine_failure(ValueError("a mistake of the program")) is None


def test_rows_that_a_dataset_left_out_are_told_and_only_by_datasets_that_count() -> None:
    counting: Any = SimpleNamespace(dataset=SimpleNamespace(skipped={"train": 2, "evaluation": 0}.__getitem__))
    told = ["skipped   2 rows of data.train that cannot be used"]
    assert skipped_rows(counting, "train", "evaluation") == told
    silent: Any = SimpleNamespace(dataset=SimpleNamespace())
    assert skipped_rows(silent, "train") == []
