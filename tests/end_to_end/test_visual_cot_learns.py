"""The default recipe of ``examples/visual-cot`` learns from pictures, and from nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from example_plugin import search_path
from finished_runs import ONE_THREAD, Learned, commit, learned, write_page
from rlcore.diagnosis.diagnosing import diagnose
from workspace import ROOT

EXAMPLE = ROOT / "examples" / "visual-cot"
CHANCE = (1 / 6 + 1 / 4 + 1 / 4 + 1 / 3) / 4
"""The best accuracy without the picture: the mean over colours, shapes, corners and counts."""
MINUTES_CLAIMED = 10


def run(folder: Path, *overrides: str) -> Learned:
    path = os.pathsep.join(search_path(EXAMPLE, folder / "installed"))
    return learned(folder, "--plugin", "visual-cot", *overrides, variables={**ONE_THREAD, "PYTHONPATH": path})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shortened_run_learns_from_pictures(tmp_path: Path) -> None:
    """Most answers of the warm-up are guessed, so only reinforcement learning can raise the accuracy.

    The accuracy after 60 steps is 0.57 to 0.8: it depends on the rounding of the processor.
    """
    found = run(tmp_path, "trainer.steps=60", "evaluation.every=60", "checkpoint.every=0")
    assert found.first < 0.42
    assert found.last > 2 * CHANCE
    assert diagnose(tmp_path / "run").found == []


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_three_seeds_learn_and_controls_do_not(tmp_path: Path) -> None:
    overrides = {f"seed {seed}": f"seed={seed}" for seed in (0, 1, 2)} | {
        "empty pictures": "data.blank=true",
        "rewards shuffled": "algorithm.shuffle_rewards=true",
    }
    with ThreadPoolExecutor(max_workers=2) as pool:  # each run has one thread
        started = {name: pool.submit(run, tmp_path / name, override) for name, override in overrides.items()}
        runs = {name: future.result() for name, future in started.items()}
    write_table(runs)
    for seed in ("seed 0", "seed 1", "seed 2"):
        assert runs[seed].first < 0.4, seed
        assert runs[seed].last > 0.8, seed
        if (os.cpu_count() or 1) >= 2 and os.getloadavg()[0] < 3:
            assert runs[seed].seconds < MINUTES_CLAIMED * 60, seed
    assert max(runs["empty pictures"].accuracy.values()) < CHANCE + 0.1
    shuffled = runs["rewards shuffled"]
    assert shuffled.last < shuffled.first + 0.15


def write_table(runs: Mapping[str, Learned]) -> None:
    introduction = (
        "# visual-cot: the default recipe",
        "",
        "Accuracy of sampled answers to 200 held-out questions about generated pictures, by training step.",
        f"Step 0 is after the warm-up. Without the picture, the best accuracy is {CHANCE:.3f}. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_visual_cot_learns.py`",
        f"at commit {commit()}, two runs at a time on {os.cpu_count()} cores.",
    )
    columns = ("run", "command", *sorted(runs["seed 0"].accuracy), "seconds")
    rows = ([name, f"`{one.command}`", *one.cells(), f"{one.seconds:.0f}"] for name, one in runs.items())
    write_page("visual-cot", introduction, columns, rows)
