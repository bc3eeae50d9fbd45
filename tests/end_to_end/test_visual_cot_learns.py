"""The default recipe of ``examples/visual-cot`` learns from pictures, and from nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from example_plugin import search_path
from rlcore.diagnosis.diagnosing import diagnose
from workspace import ROOT

EXAMPLE, TABLE = ROOT / "examples" / "visual-cot", ROOT / "docs" / "results" / "visual-cot.md"
CHANCE = (1 / 6 + 1 / 4 + 1 / 4 + 1 / 3) / 4
"""The best accuracy without the picture: the mean over colours, shapes, corners and counts."""
MINUTES_CLAIMED = 10


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A finished run."""

    command: str
    accuracy: Mapping[int, float]
    """Accuracy of sampled answers to held-out questions by step."""
    seconds: float

    @property
    def first(self) -> float:
        return self.accuracy[0]

    @property
    def last(self) -> float:
        return self.accuracy[max(self.accuracy)]


def run(folder: Path, *overrides: str) -> Learned:
    path = {"PYTHONPATH": os.pathsep.join(search_path(EXAMPLE, folder / "installed"))}
    arguments = ("run", "--plugin", "visual-cot", *overrides)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments, f"runs={folder}", "name=run"],
        env=os.environ | path | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    accuracy = {line["step"]: line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line}
    return Learned(command=" ".join(("rlcore", *arguments)), accuracy=accuracy, seconds=seconds)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shortened_run_learns_from_pictures(tmp_path: Path) -> None:
    """Most answers of the warm-up are guessed, so only reinforcement learning can raise the accuracy.

    The accuracy after 60 steps is 0.57 to 0.8: it depends on the rounding of the processor.
    """
    learned = run(tmp_path, "trainer.steps=60", "evaluation.every=60", "checkpoint.every=0")
    assert learned.first < 0.42
    assert learned.last > 2 * CHANCE
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
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    steps = sorted(runs["seed 0"].accuracy)
    lines = [
        "# visual-cot: the default recipe",
        "",
        "Accuracy of sampled answers to 200 held-out questions about generated pictures, by training step.",
        f"Step 0 is after the warm-up. Without the picture, the best accuracy is {CHANCE:.3f}. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_visual_cot_learns.py`",
        f"at commit {commit.stdout.strip() or 'unknown'}, two runs at a time on {os.cpu_count()} cores.",
        "",
        "| run | command | " + " | ".join(f"step {step}" for step in steps) + " | seconds |",
        "|---|---|" + "---|" * (len(steps) + 1),
    ]
    for name, learned in runs.items():
        accuracies = " | ".join(f"{learned.accuracy[step]:.3f}" for step in steps)
        lines.append(f"| {name} | `{learned.command}` | {accuracies} | {learned.seconds:.0f} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
