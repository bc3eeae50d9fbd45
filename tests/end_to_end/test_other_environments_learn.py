"""The default recipes for environments of other projects learn: a taskset of verifiers, and a class for TRL."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from finished_runs import evaluations, succeeded
from preloaded import rlcore_command

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers

PYTHON = Path(peers.HERE) / "verifiers" / ".venv" / "bin" / "python"


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_VERIFIERS", os.environ.get("RLCORE_VERIFIERS", str(PYTHON)))


def accuracies(folder: Path, plugin: str, *overrides: str) -> list[float]:
    """The mean reward on the held-out tasks at each evaluation."""
    words = ["run", "-p", plugin, "name=run", "checkpoint.every=0", *overrides]
    succeeded(rlcore_command(words, folder, timeout_s=1700))
    return list(evaluations(folder / "runs" / "run", "reward").values())


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
