"""Commands name the files and modules of import paths before they import them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]

MINE = "import sys\nprint('code runs', file=sys.stderr)\ndef score(trajectory, task): return 1.0\n"


@pytest.mark.parametrize("command", [("config", "show"), ("run", "--dry-run")])
def test_files_are_named_before_their_code_runs(command: tuple[str, ...], rlcore: Call, toy: Any) -> None:
    (toy.work / "mine.py").write_text(MINE, encoding="utf-8")
    done = rlcore(*command, "-p", "toy", "reward.0.id=mine.py:score")
    assert done.status == 0, done.err
    lines = done.err.splitlines()
    (line,) = [line for line in lines if line.startswith("imports")]
    assert "mine.py:score for reward.0.id, from command line: reward.0.id=mine.py:score" in line
    assert lines.index(line) < lines.index("code runs")


def test_modules_are_named_before_their_code_runs(rlcore: Call, toy: Any) -> None:
    done = rlcore("config", "show", "-p", "toy", "environment.tools=['toy_rl:adder']", "model.path=builtin:tiny")
    assert done.status == 0, done.err
    assert [line.split()[1] for line in done.err.splitlines() if line.startswith("imports")] == ["toy_rl:adder"]
