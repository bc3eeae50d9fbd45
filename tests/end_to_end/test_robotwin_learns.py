"""The recipes of RoboTwin imitate a few demonstrations, and then learn from success alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from finished_runs import Learned, commit, learned, metrics, write_page
from rlcore.diagnosis.diagnosing import diagnose
from rlcore.episodes.evaluation import wilson

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

SEEDS = (0, 1, 2)
EPISODES = 200
"""Held-out episodes of each evaluation in the proofs."""
MORE = f"data.evaluation={EPISODES}"


def run(folder: Path, *overrides: str) -> Learned:
    """A run with the success rate of the greedy policy on held-out seeds. Step 0 is after the imitation."""
    return learned(folder, "-p", "robotwin", *overrides)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_shortened_run_reaches_more_often_than_the_cloned_policy(tmp_path: Path) -> None:
    smaller = ("trainer.tasks_per_step=16", "trainer.learning_rate=3e-4", "observers=[]")
    found = run(tmp_path, "trainer.steps=12", "evaluation.every=12", "data.evaluation=64", *smaller)
    assert found.first < 0.5
    assert found.last > found.first + 0.15
    assert diagnose(tmp_path / "run").found == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_processes_train_the_default_recipe_like_one(tmp_path: Path) -> None:
    small = ["trainer.steps=2", "trainer.tasks_per_step=4", "rollout.group_size=4", "warmup.episodes=8"]
    small += ["warmup.demonstrations_per_step=32", "data.evaluation=6", "evaluation.every=2", "model.device=cpu"]
    small += ["observers=[]", "sampler.environments=4", "algorithm.advantage.id=rloo"]
    run(tmp_path / "one", *small)
    run(tmp_path / "two", *small, "strategy.id=ddp", "strategy.processes=2")
    one, two = (metrics(tmp_path / name / "run") for name in ("one", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two] == [0, 1, 2]
    for before, after in zip(one, two, strict=True):
        for name in (name for name in before if not name.startswith(("time", "memory"))):
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
    assert wilson(stacked.first, EPISODES)[1] < wilson(stacked.last, EPISODES)[0]


def write_table(name: str, title: str, test: str, runs: Mapping[str, Learned]) -> None:
    """Write the page of results `name`."""
    introduction = (
        f"# robotwin: {title}",
        "",
        f"Success rate of the greedy policy in {EPISODES} held-out episodes by training step, with the 95 % Wilson",
        "intervals of the first and the last one. Step 0 is after the imitation of the expert. Written by",
        f"`uv run pytest -m proof tests/end_to_end/test_robotwin_learns.py -k {test}`",
        f"at commit {commit()}, on {os.cpu_count()} cores.",
    )
    rows = []
    for run_name, one in runs.items():
        cells = one.cells()
        for end, rate in ((0, one.first), (-1, one.last)):
            low, high = wilson(rate, EPISODES)
            cells[end] += f" ({low:.2f} to {high:.2f})"
        rows.append([run_name, f"`{one.command}`", *cells, f"{one.seconds:.0f}"])
    columns = ("run", "command", *sorted(next(iter(runs.values())).accuracy), "seconds")
    write_page(name, introduction, columns, rows)
