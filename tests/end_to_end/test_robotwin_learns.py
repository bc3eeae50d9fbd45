"""The recipes of RoboTwin imitate a few demonstrations, and then learn from success alone."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from rlcore.diagnosis.diagnosing import diagnose
from workspace import ROOT

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

SEEDS = (0, 1, 2)
EPISODES = 200
"""Held-out episodes of each evaluation in the proofs."""
MORE = f"data.evaluation={EPISODES}"


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A finished run."""

    command: str
    success: Mapping[int, float]
    """Success rate of the greedy policy on held-out seeds by step. Step 0 is after the imitation."""
    seconds: float

    @property
    def first(self) -> float:
        return self.success[0]

    @property
    def last(self) -> float:
        return self.success[max(self.success)]


def run(folder: Path, *overrides: str) -> Learned:
    arguments = ("run", "-p", "robotwin", *overrides)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments, f"runs={folder}", "name=run"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seconds = time.monotonic() - started
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    success = {line["step"]: line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line}
    return Learned(command=" ".join(("rlcore", *arguments)), success=success, seconds=seconds)


def interval(rate: float, episodes: int) -> tuple[float, float]:
    """The Wilson interval of a success rate at 95 %."""
    z = 1.96
    centre = rate + z * z / (2 * episodes)
    spread = z * math.sqrt(rate * (1 - rate) / episodes + z * z / (4 * episodes**2))
    scale = 1 + z * z / episodes
    return (centre - spread) / scale, (centre + spread) / scale


@pytest.mark.long
@pytest.mark.timeout(900)
def test_shortened_run_reaches_more_often_than_the_cloned_policy(tmp_path: Path) -> None:
    smaller = ("trainer.tasks_per_step=16", "trainer.learning_rate=3e-4", "observers=[]")
    learned = run(tmp_path, "trainer.steps=12", "evaluation.every=12", "data.evaluation=64", *smaller)
    assert learned.first < 0.5
    assert learned.last > learned.first + 0.15
    assert diagnose(tmp_path / "run").found == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_processes_train_the_default_recipe_like_one(tmp_path: Path) -> None:
    small = ["trainer.steps=2", "trainer.tasks_per_step=4", "rollout.group_size=4", "warmup.episodes=8"]
    small += ["warmup.demonstrations_per_step=32", "data.evaluation=6", "evaluation.every=2", "model.device=cpu"]
    small += ["observers=[]", "sampler.environments=4", "algorithm.advantage.id=rloo"]
    run(tmp_path / "one", *small)
    run(tmp_path / "two", *small, "strategy.id=ddp", "strategy.processes=2")
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "run/metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert [line["step"] for line in one] == [line["step"] for line in two] == [0, 1, 2]
    for before, after in zip(one, two, strict=True):
        for name in (name for name in before if not name.startswith("time")):
            assert after[name] == pytest.approx(before[name], rel=2e-2, abs=2e-3), (before["step"], name)


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_reach_is_learned_on_three_seeds(tmp_path: Path) -> None:
    alone = (MORE, "sampler.vector=sync")  # one process and one core for each run
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        started = {f"seed {seed}": pool.submit(run, tmp_path / str(seed), f"seed={seed}", *alone) for seed in SEEDS}
        runs = {name: future.result() for name, future in started.items()}
    write_table("robotwin", "the default recipe", "test_reach_is_learned_on_three_seeds", runs)
    for name, reached in runs.items():
        assert reached.first < 0.5, name
        assert reached.last > 0.9, name


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_stacking_improves_on_the_cloned_policy(tmp_path: Path) -> None:
    stacked = run(tmp_path, "-r", "stack-two", MORE)
    write_table("robotwin-stack-two", "stacking", "test_stacking_improves_on_the_cloned_policy", {"seed 0": stacked})
    assert interval(stacked.first, EPISODES)[1] < interval(stacked.last, EPISODES)[0]


def write_table(name: str, title: str, test: str, runs: Mapping[str, Learned]) -> None:
    """Write the page of results `name`."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    lines = [
        f"# robotwin: {title}",
        "",
        f"Success rate of the greedy policy in {EPISODES} held-out episodes by training step, with the 95 % Wilson",
        "intervals of the first and the last one. Step 0 is after the imitation of the expert. Written by",
        f"`uv run pytest -m proof tests/end_to_end/test_robotwin_learns.py -k {test}`",
        f"at commit {commit.stdout.strip() or 'unknown'}, on {os.cpu_count()} cores.",
        "",
    ]
    steps = sorted(next(iter(runs.values())).success)
    lines += ["| run | command | " + " | ".join(f"step {step}" for step in steps) + " | seconds |"]
    lines += ["|---|---|" + "---|" * (len(steps) + 1)]
    for run_name, learned in runs.items():
        cells = [f"{learned.success[step]:.3f}" for step in steps]
        for end in (0, -1):
            low, high = interval(learned.success[steps[end]], EPISODES)
            cells[end] += f" ({low:.2f} to {high:.2f})"
        lines.append(f"| {run_name} | `{learned.command}` | {' | '.join(cells)} | {learned.seconds:.0f} |")
    (ROOT / "docs" / "results" / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
