"""The default recipe of gsm8k-tools learns, with the command in the README."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "docs" / "results" / "gsm8k-tools.md"
MINUTES_CLAIMED = 3


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The metrics of a run."""

    accuracy: dict[int, float]
    """Greedy accuracy on the held-out tasks by step."""
    first_reward: float
    """Mean reward of the trajectories of the first step, before any update."""
    seconds: float
    arguments: tuple[str, ...]

    @property
    def first(self) -> float:
        return self.accuracy[min(self.accuracy)]

    @property
    def last(self) -> float:
        return self.accuracy[max(self.accuracy)]


def run(folder: Path, *overrides: str) -> Finished:
    arguments = ("run", "--plugin", "gsm8k-tools", *overrides)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments, f"runs={folder}", "name=run"],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return outcome(folder / "run", seconds=seconds, arguments=arguments)


def outcome(run: Path, *, seconds: float = 0.0, arguments: tuple[str, ...] = ()) -> Finished:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return Finished(
        accuracy={line["step"]: line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line},
        first_reward=next(line["reward/mean"] for line in lines if "reward/mean" in line),
        seconds=seconds,
        arguments=arguments,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shortened_run_learns(shortened_run: Path) -> None:
    """Accuracy is near zero after the warm-up, so only reinforcement learning can raise it."""
    learned = outcome(shortened_run)
    assert learned.first < 0.2
    assert learned.last > 0.75


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_three_seeds_learn_and_controls_do_not(tmp_path: Path) -> None:
    learned = {seed: run(tmp_path / str(seed), f"seed={seed}") for seed in (0, 1, 2)}
    without_tool = run(tmp_path / "without", "environment.tools=[]")
    shuffled = run(tmp_path / "shuffled", "algorithm.shuffle_rewards=true")
    rows = [(f"seed {seed}", finished) for seed, finished in learned.items()]
    write_table([*rows, ("without tool", without_tool), ("rewards shuffled", shuffled)])
    for seed, finished in learned.items():
        assert finished.first_reward <= 1 / 3 + 0.08, f"seed {seed}: the accuracy after the warm-up is too high"
        assert finished.first < 0.5, f"seed {seed}"
        assert finished.last > 0.9, f"seed {seed}"
        if (os.cpu_count() or 1) >= 2 and os.getloadavg()[0] < 3:
            assert finished.seconds < MINUTES_CLAIMED * 60, f"seed {seed}"
    assert max(without_tool.accuracy.values()) < 0.5
    assert shuffled.last < shuffled.first + 0.2


def write_table(rows: list[tuple[str, Finished]]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    steps = sorted(rows[0][1].accuracy)
    lines = [
        "# gsm8k-tools: the default recipe",
        "",
        "Greedy accuracy on 128 held-out problems by training step. The held-out problems share no sentence frame and",
        "no pair of numbers with the training problems. Step 0 is after the warm-up. The first reward is the mean",
        "reward of samples at step 0. Written by `uv run pytest -m proof tests/end_to_end/test_gsm8k_learns.py`",
        f"at commit {commit.stdout.strip() or 'unknown'} on {os.cpu_count()} cores.",
        "",
        "| run | command | first reward | " + " | ".join(f"step {step}" for step in steps) + " | seconds |",
        "|---|---|---|" + "---|" * (len(steps) + 1),
    ]
    for name, finished in rows:
        accuracies = " | ".join(f"{finished.accuracy[step]:.3f}" for step in steps)
        command = f"`rlcore {' '.join(finished.arguments)}`"
        lines.append(f"| {name} | {command} | {finished.first_reward:.3f} | {accuracies} | {finished.seconds:.0f} |")
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
