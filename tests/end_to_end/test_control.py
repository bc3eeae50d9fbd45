"""Runs of control policies: they learn, resume exactly, and two processes match one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import point_control
import pytest
import torch
from finished_runs import numbers, succeeded
from preloaded import rlcore_command
from rlcore import load_run
from rlcore.rollouts.records import read_groups
from safetensors.torch import load_file

POINT = f"""
[model]
path = "builtin:tiny-vla"
device = "cpu"
builder = {{ layers = 0, width = 16 }}
[environment]
id = "{point_control.__file__}:Point"
[data]
id = "{point_control.__file__}:PointTasks"
[[reward]]
id = "control-success"
[sampler]
id = "control"
[rollout]
group_size = 8
[trainer]
tasks_per_step = 8
learning_rate = 3e-3
betas = [0.9, 0.99]
"""
GRPO = ("run", "-c", "point.toml", "name=run", "warmup.steps=30", "evaluation.tasks=32")
PPO = (
    *("run", "-c", "point.toml", "name=run", "rollout.group_size=1", "algorithm.turn_rewards=only"),
    *("algorithm.advantage.id=gae", "algorithm.advantage.gamma=0.9", "critic.model=copy", "critic.learning_rate=3e-3"),
    *("trainer.epochs=2", "trainer.updates_per_rollout=2", "trainer.steps=4", "warmup.steps=3"),
    *("evaluation.every=2", "evaluation.tasks=7"),
)


def run(arguments: tuple[str, ...], folder: Path) -> Path:
    (folder / "point.toml").write_text(POINT, encoding="utf-8")
    succeeded(rlcore_command(arguments, folder, environment={**os.environ, "OMP_NUM_THREADS": "1"}))
    return folder / "runs" / "run"


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "last" / "model" / "model.safetensors")


def decisions(run: Path) -> dict[str, list[Any]]:
    """What all trajectories saw and chose, by file."""
    files = sorted((run / "rollouts").iterdir())
    return {
        path.name: [one.segments[0].arrays for group in read_groups(path) for one in group.trajectories]
        for path in files
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(PPO, tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
def test_resumed_run_equals_an_uninterrupted_one(whole: Path, tmp_path: Path) -> None:
    found = run((*PPO, "trainer.steps=2"), tmp_path)
    run(("run", "--resume", "runs/run", "trainer.steps=4"), tmp_path)
    assert numbers(found) == numbers(whole)
    assert decisions(found) == decisions(whole)
    assert all(torch.equal(weights(found)[name], tensor) for name, tensor in weights(whole).items())


@pytest.mark.slow
def test_decisions_have_the_version_of_the_policy_that_made_them(whole: Path) -> None:
    rows = load_run(whole).index("train")
    assert {row["staleness"] for row in rows} == {0}
    assert len({row["trained_version"] for row in rows}) == 4
    assert all(row["versions"] == [row["trained_version"]] * 2 for row in rows)


@pytest.mark.long
def test_two_processes_match_one_process(whole: Path, tmp_path: Path, equal_rows: None) -> None:
    (tmp_path / "point.toml").write_text(POINT, encoding="utf-8")
    arguments = (*PPO, "strategy.id=ddp", "strategy.processes=2")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rlcore", *arguments]
    succeeded(
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    )
    found = tmp_path / "runs" / "run"
    expected, measured = numbers(whole), numbers(found)
    for step, known in expected.items():
        for name, value in known.items():
            assert measured[step][name] == pytest.approx(value, rel=1e-3, abs=1e-5), (step, name)
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(found)[name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_cloning_and_then_sparse_success_teaches_a_point_to_reach(tmp_path: Path) -> None:
    found = numbers(run((*GRPO, "trainer.steps=12", "evaluation.every=12"), tmp_path))
    assert 0.05 < found[0]["evaluation/accuracy"] < 0.8
    assert found[12]["evaluation/accuracy"] > found[0]["evaluation/accuracy"] + 0.15


@pytest.mark.slow
def test_default_control_recipe_learns_and_is_evaluated(tmp_path: Path) -> None:
    options = ("trainer.steps=14", "evaluation.every=14", "evaluation.tasks=16", "name=run")
    found = numbers(run(("run", "-p", "gymnasium", "-r", "control", *options), tmp_path))
    assert found[0]["evaluation/reward"] < -100
    assert found[14]["evaluation/reward"] > -90
    done = succeeded(rlcore_command(("eval", "runs/run", "--json"), tmp_path))
    assert json.loads(done.stdout)["reward"] == pytest.approx(found[14]["evaluation/reward"])
