"""Invalid user input, and the state of a run that it stops."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from rlcore.cli import exit_status
from rlcore.config.origins import parse_toml
from rlcore.errors import ConfigError, DivergenceError
from rlcore.runs.directory import read_metrics
from rlcore.session.datasets import rows_told

Call = Callable[..., Any]


def test_new_run_stopped_by_bad_input_is_removed(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "trainer.fail=input", "name=mine")
    assert done.status == 2
    assert "error: row 3 has no answer" in done.err
    assert "runs/mine was removed" in done.err
    assert not Path("runs/mine").exists()


@pytest.mark.parametrize("name", ["x" * 300, "é" * 150, "a/b"])
def test_invalid_folder_name_is_rejected(rlcore: Call, name: str) -> None:
    done = rlcore("run", "-p", "toy", f"name={name}")
    assert done.status == 2
    assert "is not a valid folder name" in done.err


def test_more_tasks_per_step_than_tasks_are_rejected(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "trainer.tasks_per_step=100000")
    assert done.status == 2
    assert "a step needs 100000 different tasks" in done.err
    assert "command line: trainer.tasks_per_step=100000" in done.err
    assert not Path("runs").exists()


def test_evaluation_of_a_missing_folder_is_rejected(rlcore: Call) -> None:
    done = rlcore("eval", "nonsense")
    assert done.status == 2
    assert "there is no run or model folder nonsense" in done.err
    done = rlcore("eval", "model.path=runs/nothing")
    assert done.status == 2
    assert "there is no run or model folder runs/nothing" in done.err


def test_deep_nesting_is_rejected(rlcore: Call) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_toml("a = " + "[" * 50_000, "deep.toml")
    assert raised.value.where == "deep.toml"
    Path("deep.json").write_text("[" * 100_000, encoding="utf-8")
    done = rlcore("data", "show", "deep.json")
    assert done.status == 2
    assert "cannot read deep.json" in done.err


@pytest.mark.parametrize("environment", ["{", '{"versions": 5, "plugins": [], "python": {}}'])
def test_run_with_damaged_records_can_be_resumed(rlcore: Call, environment: str) -> None:
    assert rlcore("run", "-p", "toy", "name=mine").status == 0
    run = Path("runs/mine")
    (run / "environment.json").write_text(environment, encoding="utf-8")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"other": 1}\n{"step"')
    done = rlcore("run", "--resume", run, "trainer.steps=4")
    assert done.status == 0, done.err
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [1, 2, 3, 4]
    assert all(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())


FULL = os.strerror(errno.ENOSPC)


def failing_command(error: Exception, monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """A command without arguments that raises ``error``."""

    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["fail"])
    return fail


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, FULL), RuntimeError(f"I/O error: {FULL} (os error 28)")])
def test_full_disk_is_reported_without_a_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(failing_command(error, monkeypatch), "fail") == 2
    assert FULL in capsys.readouterr().err


def test_diverged_training_is_reported_with_its_own_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = DivergenceError("the loss is nan at step 3", found="the last good checkpoint is x", fix="lower it")
    assert exit_status(failing_command(error, monkeypatch), "fail") == 1
    assert "the last good checkpoint is x" in capsys.readouterr().err


def test_skipped_rows_are_reported() -> None:
    counting: Any = SimpleNamespace(skipped={"train": 2, "evaluation": 0}.__getitem__)
    (line,) = rows_told(counting, "train", "evaluation")
    assert "2 unusable rows in data.train" in line
    without_count: Any = SimpleNamespace()
    assert rows_told(without_count, "train") == []
