"""The default recipe of gsm8k-tools learns, with the command in the README."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from finished_runs import Learned, commit, evaluations, learned, metrics, write_page

MINUTES_CLAIMED = 3


def run(folder: Path, *overrides: str) -> Learned:
    return learned(folder, "--plugin", "gsm8k-tools", *overrides, variables={})


def first_reward(finished: Learned) -> float:
    """Mean reward of the trajectories of the first step, before any update."""
    return next(row["reward/mean"] for row in metrics(finished.run) if "reward/mean" in row)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shortened_run_learns(shortened_run: Path) -> None:
    """Accuracy is near zero after the warm-up, so only reinforcement learning can raise it."""
    first, *_, last = evaluations(shortened_run).values()
    assert first < 0.2
    assert last > 0.75


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_three_seeds_learn_and_controls_do_not(tmp_path: Path) -> None:
    seeds = {seed: run(tmp_path / str(seed), f"seed={seed}") for seed in (0, 1, 2)}
    without_tool = run(tmp_path / "without", "environment.tools=[]")
    shuffled = run(tmp_path / "shuffled", "algorithm.shuffle_rewards=true")
    named = {f"seed {seed}": finished for seed, finished in seeds.items()}
    write_table({**named, "without tool": without_tool, "rewards shuffled": shuffled})
    for seed, finished in seeds.items():
        assert first_reward(finished) <= 1 / 3 + 0.08, f"seed {seed}: the accuracy after the warm-up is too high"
        assert finished.first < 0.5, f"seed {seed}"
        assert finished.last > 0.9, f"seed {seed}"
        if (os.cpu_count() or 1) >= 2 and os.getloadavg()[0] < 3:
            assert finished.seconds < MINUTES_CLAIMED * 60, f"seed {seed}"
    assert max(without_tool.accuracy.values()) < 0.5
    assert shuffled.last < shuffled.first + 0.2


def write_table(runs: Mapping[str, Learned]) -> None:
    introduction = (
        "# gsm8k-tools: the default recipe",
        "",
        "Greedy accuracy on 128 held-out problems by training step. The held-out problems share no sentence frame and",
        "no pair of numbers with the training problems. Step 0 is after the warm-up. The first reward is the mean",
        "reward of samples at step 0. Written by `uv run pytest -m proof tests/end_to_end/test_gsm8k_learns.py`",
        f"at commit {commit()} on {os.cpu_count()} cores.",
    )
    columns = ("run", "command", "first reward", *sorted(runs["seed 0"].accuracy), "seconds")
    rows = (
        [name, f"`{one.command}`", f"{first_reward(one):.3f}", *one.cells(), f"{one.seconds:.0f}"]
        for name, one in runs.items()
    )
    write_page("gsm8k-tools", introduction, columns, rows)
