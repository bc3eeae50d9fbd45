"""The adapters to other collections of environments learn on a small one of theirs, on more than one seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import evaluations, succeeded
from preloaded import rlcore_command

SMALL_LAKE = (
    'data.arguments={is_slippery=false, desc=["SFF","FHF","FFG"]}',
    *(
        "trainer.learning_rate=5e-4",
        "environment.max_turns=8",
        "warmup.steps=100",
        "trainer.steps=12",
        "evaluation.every=12",
        "checkpoint.every=0",
    ),
)
"""Nine fields with a hole in the middle: without looking at the field, at most every second episode succeeds."""


def run(plugin: str, metric: str, folder: Path, *overrides: str) -> list[float]:
    succeeded(rlcore_command(["run", "-p", plugin, "name=run", *overrides], folder, timeout_s=500))
    return list(evaluations(folder / "runs" / "run", metric).values())


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1])
def test_gymnasium_learns_to_look_at_the_observation(seed: int, tmp_path: Path) -> None:
    first, *_, last = run("gymnasium", "accuracy", tmp_path, *SMALL_LAKE, f"seed={seed}")
    assert first < 0.4
    assert last > 0.65


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1])
def test_gem_learns_to_answer_in_the_format_of_the_game(seed: int, tmp_path: Path) -> None:
    """An answer in another format costs 0.1, and random guesses in the format have a mean reward of about 0.55."""
    short = ("trainer.steps=10", "evaluation.every=10", "checkpoint.every=0", f"seed={seed}")
    first, *_, last = run("gem", "reward", tmp_path, *short)
    assert first < 0.35
    assert last > first + 0.2
