"""The recipes of textarena learn: against random moves, and by self-play, evaluated against random moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import evaluations, succeeded
from preloaded import rlcore_command


def results(folder: Path, *overrides: str) -> list[float]:
    """The mean result of the held-out games at each evaluation."""
    words = ["run", "-p", "textarena", "name=run", "checkpoint.every=0", "data.evaluation=256", *overrides]
    succeeded(rlcore_command(words, folder, timeout_s=1700))
    return list(evaluations(folder / "runs" / "run", "reward").values())


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("recipe", "gain"), [("default", 0.3), ("self-play", 0.15)])
@pytest.mark.parametrize("seed", [0, 1])
def test_recipe_learns_to_win_against_random_moves(recipe: str, gain: float, seed: int, tmp_path: Path) -> None:
    first, *_, last = results(tmp_path, "-r", f"textarena/{recipe}", f"seed={seed}")
    assert first < 0.1
    assert last > first + gain


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", ["default", "self-play"])
def test_shuffled_rewards_teach_nothing(recipe: str, tmp_path: Path) -> None:
    first, *_, last = results(tmp_path, "-r", f"textarena/{recipe}", "algorithm.shuffle_rewards=true")
    assert last < first + 0.1
