"""The default recipes for environments of other projects learn: a taskset of verifiers, and a class for TRL."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from preloaded import rlcore_command

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers

PYTHON = Path(peers.HERE) / "verifiers" / ".venv" / "bin" / "python"


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_VERIFIERS", os.environ.get("RLCORE_VERIFIERS", str(PYTHON)))


def accuracies(folder: Path, plugin: str, *overrides: str) -> list[float]:
    """The mean reward on the held-out tasks at each evaluation."""
    done = rlcore_command(["run", "-p", plugin, "name=run", "checkpoint.every=0", *overrides], folder, timeout_s=1700)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    lines = map(json.loads, (folder / "runs" / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["evaluation/reward"] for line in lines if "evaluation/reward" in line]


LEARNING = [
    pytest.param("verifiers", marks=pytest.mark.skipif(not PYTHON.exists(), reason=peers.missing("verifiers"))),
    "compat",
]


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("plugin", LEARNING)
def test_default_recipe_learns(plugin: str, seed: int, tmp_path: Path) -> None:
    """A seed takes two to four minutes on two cores."""
    first, *_, last = accuracies(tmp_path, plugin, f"seed={seed}")
    assert last > first + 0.15


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plugin", LEARNING)
def test_shuffled_rewards_teach_nothing(plugin: str, tmp_path: Path) -> None:
    first, *_, last = accuracies(tmp_path, plugin, "algorithm.shuffle_rewards=true")
    assert last < first + 0.1
