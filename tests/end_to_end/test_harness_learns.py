"""The default recipe of rlcore-harness learns: an agent with a loop of its own, which asks the policy over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def returns(folder: Path, *overrides: str) -> list[float]:
    """The mean return on the held-out tasks at each evaluation."""
    arguments = [
        "run",
        "--plugin",
        "harness",
        "trainer.steps=8",
        "evaluation.every=8",
        *overrides,
        f"runs={folder}",
        "name=run",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    return [line["evaluation/reward"] for line in metrics if "evaluation/reward" in line]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1])
def test_default_recipe_learns(seed: int, tmp_path: Path) -> None:
    found = returns(tmp_path, f"seed={seed}")
    assert found[0] < 0.3
    assert found[-1] > 0.9


@pytest.mark.long
@pytest.mark.timeout(900)
def test_shuffled_rewards_teach_nothing(tmp_path: Path) -> None:
    found = returns(tmp_path, "algorithm.shuffle_rewards=true")
    assert found[-1] < 0.5
