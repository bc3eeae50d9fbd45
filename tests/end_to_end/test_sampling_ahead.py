"""``schedule.ahead=1`` with the torch engine: the default recipe learns, in the same way each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from finished_runs import learned, learned_by_seed, metrics
from preloaded import rlcore_command

RUN = ("run", "-p", "gsm8k-tools", "schedule.ahead=1")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-p", "robotwin"], "a policy without tokens is sampled itself"),
        (["-p", "gsm8k-tools", "strategy.id=ddp", "strategy.processes=2"], "each process samples with its own torch"),
        (["-p", "gsm8k-tools", "-r", "smollm2-135m-sft"], "a trainer on stored examples has no groups"),
    ],
)
def test_what_cannot_be_sampled_ahead_is_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    done = rlcore_command(["run", *words, "schedule.ahead=1", "--dry-run"], tmp_path)
    assert done.returncode == 2
    assert "bad value    schedule.ahead = 1" in done.stderr
    assert reason in done.stderr


@pytest.mark.slow
def test_run_streams_its_groups_and_resumes(tmp_path: Path) -> None:
    small = ("trainer.tasks_per_step=4", "trainer.steps=3", "warmup.steps=10", "evaluation.every=0", "schedule.ahead=2")
    done = rlcore_command([*RUN, *small, "name=run", "checkpoint.every=1"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "off-policy, with sampling 2 steps ahead" in done.stdout
    assert "groups    12 submitted: 12 trained, 0 left" in done.stdout
    assert [row["step"] for row in metrics(tmp_path / "runs/run")] == [1, 2, 3]
    resumed = ["run", "--resume", str(tmp_path / "runs/run/checkpoints/000002")]
    done = rlcore_command(resumed, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "groups    12 submitted: 12 trained, 0 left" in done.stdout


@pytest.mark.long
def test_default_recipe_learns(tmp_path: Path) -> None:
    short = ("schedule.ahead=1", "trainer.steps=20", "evaluation.every=20", "checkpoint.every=0")
    found = learned(tmp_path, "-p", "gsm8k-tools", *short)
    assert found.last > 0.5 > found.first


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_small_age_drops_groups_and_a_large_one_trains_on_old_tokens() -> None:
    """The guide's table of dropped groups."""
    script = Path(__file__).parents[1] / "benchmarks/_max_age.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    print(done.stdout)
    small, middle, large, *_ = map(json.loads, done.stdout.splitlines())
    assert small["dropped"] > 0
    assert middle["dropped"] > large["dropped"] == 0
    assert small["age_max"] <= 1 <= middle["age_max"] <= 3 < large["age_max"]


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_policy_learns_the_same_as_without_sampling_ahead(tmp_path: Path) -> None:
    """The guide's table of the accuracy of each seed."""
    uncorrected = "algorithm.rollout_importance_sampling.mode=none"
    experiments = {f"ahead {ahead}": [f"schedule.ahead={ahead}"] for ahead in range(3)}
    experiments["ahead 2, uncorrected"] = ["schedule.ahead=2", uncorrected]
    found = learned_by_seed(tmp_path, experiments, (0, 1, 2), "checkpoint.every=0")
    for name, seeds in found.items():
        print(name, *("; ".join(one.cells()) for one in seeds.values()), sep=" | ")
    mean = {name: fmean(one.last for one in seeds.values()) for name, seeds in found.items()}
    assert all(one.first < 0.3 for seeds in found.values() for one in seeds.values())
    assert mean["ahead 0"] > 0.9
    # Three standard errors of the difference of two means over 3 x 128 problems, of which 5 % are not solved.
    assert all(abs(mean[f"ahead {ahead}"] - mean["ahead 0"]) < 0.05 for ahead in (1, 2)), mean
