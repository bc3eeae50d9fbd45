"""Observers: which runs call them, what they add to the metrics, and errors about them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.runs.directory import read_metrics

Call = Callable[..., Any]

CLASS = """
from rlcore import hookimpl

class Lengths:
    @hookimpl
    def rlcore_rollouts_scored(self, purpose, groups):
        longest = max(len(each.final_response) for group in groups for each in group.trajectories)
        return {f"length/{purpose}": longest}

    @hookimpl
    def rlcore_step_finished(self, step, metrics):
        metrics["changed"] = 1.0  # a copy
        return {"step/squared": step**2, "reward/mean": 100.0}

class Tracker:
    def __init__(self, config, directory): self.file = directory / "own.txt"
    def log(self, step, metrics):
        with self.file.open("a") as file: print(step, *sorted(metrics), file=file)
    def close(self): ...
"""


@pytest.fixture
def mine(toy: Any) -> Path:
    file = Path(toy.work / "mine.py")
    file.write_text(CLASS, encoding="utf-8")
    return file


def test_installed_observers_run_only_where_they_are_named(rlcore: Call) -> None:
    assert rlcore("run", "-p", "toy", "name=silent").status == 0
    assert sys.modules["toy_rl"].TOLD == []
    assert rlcore("run", "-p", "toy", "name=told", "observers=[toy]").status == 0
    assert sys.modules["toy_rl"].TOLD[0] == ("started", None)
    assert 'observers = ["toy"]' in Path("runs/told/config.toml").read_text(encoding="utf-8")


def test_metrics_of_observers_reach_every_tracker(rlcore: Call, mine: Path) -> None:
    use = "trackers.use=[jsonl,mine.py:Tracker]"
    done = rlcore("run", "-p", "toy", "name=a", "observers=[mine.py:Lengths]", use)
    assert done.status == 0, done.err
    lines = read_metrics(Path("runs/a/metrics.jsonl"))
    assert [(line["step"], line["step/squared"], line["length/train"]) for line in lines] == [
        (1, 1.0, 2.0),
        (2, 4.0, 2.0),
        (3, 9.0, 2.0),
    ]
    assert all(line["reward/mean"] != 100.0 and "changed" not in line for line in lines)
    assert "reward/mean" in Path("runs/a/output.log").read_text(encoding="utf-8")  # said that it was not logged
    rows = Path("runs/a/own.txt").read_text(encoding="utf-8").splitlines()
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert all("length/train" in row and "step/squared" in row for row in rows)


@pytest.mark.parametrize(
    ("answer", "named"), [("{'a': 'b'}", "'a'"), ("[1]", "list"), ("{1: 2.0}", "int"), ("{'a': float('nan')}", "'a'")]
)
def test_wrong_metrics_disable_only_their_observer(
    answer: str, named: str, rlcore: Call, mine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = f"class Wrong:\n    @hookimpl\n    def rlcore_step_finished(self): return {answer}\n"
    mine.write_text(CLASS + wrong, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "name=a", "observers=[mine.py:Wrong,mine.py:Lengths]")
    assert done.status == 0, done.err
    assert len(read_metrics(Path("runs/a/metrics.jsonl"))) == 3
    assert "step/squared" in read_metrics(Path("runs/a/metrics.jsonl"))[-1]
    assert done.err.count("mine.py:Wrong'") + caplog.text.count("mine.py:Wrong'") == 1
    assert named in done.err + caplog.text


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        ("toyy", "toy"),
        ("core", "no observers"),
        ("absent.py:Lengths", "absent.py"),
        ("mine.py:Length", "Lengths"),
        ("mine.py:hookimpl", "class"),
        ("mine.py:Tracker", "no observe hooks"),
        ("mine.py:Misspelt", "rlcore_step_finished"),
        ("mine.py:Unmarked", "hookimpl"),
        ("mine.py:Argument", "lossy"),
    ],
)
def test_unknown_observers_are_errors_before_the_start(id: str, reason: str, rlcore: Call, mine: Path) -> None:
    flawed = """
class Misspelt:
    @hookimpl
    def rlcore_step_finish(self): ...
class Unmarked:
    def rlcore_step_finished(self): ...
class Argument:
    @hookimpl
    def rlcore_step_finished(self, lossy): ...
"""
    mine.write_text(CLASS + flawed, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "--dry-run", f"observers=[{id}]")
    assert done.status == 2
    assert reason in done.err
    assert "observers.0" in done.err
    assert f"command line: observers=[{id}]" in done.err


def test_observer_that_cannot_be_created_is_an_error_that_names_it(rlcore: Call, mine: Path) -> None:
    broken = "class Broken(Lengths):\n    def __init__(self): raise OSError('no disk')\n"
    mine.write_text(CLASS + broken, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "observers=[mine.py:Broken]")
    assert done.status == 2
    assert "mine.py:Broken" in done.err
    assert "no disk" in done.err
    assert "Traceback" not in done.err
    assert not any(Path("runs").iterdir())


def test_files_of_observers_are_named_before_their_code_runs(rlcore: Call, mine: Path) -> None:
    mine.write_text(f"import sys\nprint('code runs', file=sys.stderr)\n{CLASS}", encoding="utf-8")
    done = rlcore("run", "--dry-run", "-p", "toy", "observers=[mine.py:Lengths]")
    assert done.status == 0, done.err
    assert done.err.index("imports   mine.py:Lengths") < done.err.index("code runs")
