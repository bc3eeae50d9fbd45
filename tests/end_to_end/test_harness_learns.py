"""The default recipe of rlcore-harness learns: an agent with a loop of its own, which asks the policy over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import evaluations, rlcore


def returns(folder: Path, *overrides: str) -> list[float]:
    """The mean return on the held-out tasks at each evaluation."""
    short = ("trainer.steps=8", "evaluation.every=8")
    rlcore("run", "--plugin", "harness", *short, *overrides, f"runs={folder}", "name=run", folder=folder, variables={})
    return list(evaluations(folder / "run", "reward").values())


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
