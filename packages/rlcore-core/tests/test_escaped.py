"""An exception that escapes a command: one line with its component, and a file with the trace."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from rlcore.cli import exit_status

Call = Callable[..., Any]


class Strange(BaseException):
    """Not an `Exception`."""


def failing(error: BaseException) -> click.Command:
    @click.command()
    def fail() -> None:
        raise error

    return fail


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(sys, "argv", ["fail"])
    monkeypatch.delenv("RLCORE_TRACE", raising=False)
    return folder


ERRORS = [
    ZeroDivisionError("a bug"),
    ValueError("two\nlines and \x1b[31mred"),
    KeyError("\ud800"),
    AssertionError(),
    Strange("outside"),
    FileNotFoundError(2, "gone"),
    ExceptionGroup("many", [ValueError("one of many")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_escaped_exception_is_one_line_and_a_file(
    error: BaseException, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(failing(error), "fail") == 70
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.isprintable()
    (trace,) = temporary.iterdir()
    assert line.endswith(f"the trace is in {trace}")
    assert "Traceback (most recent call last)" in trace.read_text(encoding="utf-8")


def test_trace_is_printed_when_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RLCORE_TRACE", "1")
    assert exit_status(failing(ValueError("a bug")), "fail") == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_bug_of_a_plugin_names_it_and_the_log_of_the_run(rlcore: Call, options: tuple[str, ...]) -> None:
    done = rlcore("run", "-p", "toy", "trainer.fail=bug", "name=mine", *options)
    assert done.status == 70
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert re.match(r"error: toy-rl 0\.3 failed: ZeroDivisionError: a bug", line)
    assert line.endswith("the trace is in runs/mine/output.log")
    assert "Traceback" not in done.err + done.out
    assert "Traceback (most recent call last)" in Path("runs/mine/output.log").read_text(encoding="utf-8")


def test_bug_in_a_file_of_an_import_path_names_the_file(rlcore: Call) -> None:
    source = "import toy_rl\nclass Trainer(toy_rl.Trainer):\n    Config = toy_rl.TrainerConfig\n"
    source += "    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))\n"
    source += "    def train(self): return 1 / 0\n"
    Path("mine.py").write_text(source, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "trainer.id=mine.py:Trainer")
    assert done.status == 70
    assert f"error: {Path('mine.py').resolve()} failed: ZeroDivisionError" in done.err


@pytest.mark.parametrize("argument", ["x" * 300, "x/" * 3000])
@pytest.mark.parametrize(
    "command", [("data", "show"), ("run", "--resume"), ("run", "-c"), ("eval",), ("config", "diff", ".")]
)
def test_names_that_are_too_long_are_bad_input(rlcore: Call, command: tuple[str, ...], argument: str) -> None:
    done = rlcore(*command, argument)
    assert done.status == 2
    assert "  fix " in done.err
