"""``rlcore plan`` from the measurements of real runs on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from preloaded import rlcore_command

CLUSTER = """\
nodes = 1
gpus_per_node = 2
network_gb_s = 10

[card]
tflops = 1
memory_gb = 16
bandwidth_gb_s = 100
link_gb_s = 10
"""
WAITING = """\
import math
import random

import asyncio
from rl_plugin_gsm8k_tools.config import EnvironmentConfig
from rl_plugin_gsm8k_tools.environment import Gsm8kTools

CLOCK = random.SystemRandom()


class Waiting(Gsm8kTools):
    Config = EnvironmentConfig

    async def reset(self, task, *, seed):
        await asyncio.sleep(math.exp(CLOCK.gauss(math.log(8) - 0.125, 0.5)))
        return await super().reset(task, seed=seed)


def varied(trajectory, task):
    return trajectory.segments[0].token_ids[-1] % 7 / 6
"""
"""Resets take 8 s on average, log-normal with spread 0.5; rewards differ, so that there is something to learn."""


def measured_step_s(run: Path, *, after: int) -> float:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return fmean(row["time/step_s"] for row in rows if row["step"] > after)


def planned(folder: Path, run: Path, *words: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The outcomes of plans by the number of cards and ``schedule.ahead``."""
    (folder / "cluster.toml").write_text(CLUSTER, encoding="utf-8")
    of_run = ["-c", str(run / "config.toml"), "--calibrate", str(run), "--lengths", str(run)]
    done = rlcore_command(["plan", "cluster.toml", *of_run, "--json", *words], folder)
    assert done.returncode == 0, done.stderr
    return {(row["cards"], row["ahead"]): row["outcome"] for row in json.loads(done.stdout)["plans"]}


@pytest.mark.slow
def test_a_run_calibrates_its_plan(shortened_run: Path, tmp_path: Path) -> None:
    plans = planned(tmp_path, shortened_run, "--gpus", "1", "--gpus", "2")
    assert set(plans) == {(1, 0), (2, 0), (2, 1), (2, 2), (2, 4)}  # one card cannot be divided
    assert plans[1, 0]["step_s"] == pytest.approx(measured_step_s(shortened_run, after=1), rel=0.3)


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_plans_are_what_runs_that_wait_measure(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING, encoding="utf-8")
    words = (
        *("run", "-p", "gsm8k-tools", "environment.id=waiting.py:Waiting", "data.id=gsm8k-tools"),
        *("reward.0.id=waiting.py:varied", "warmup.steps=0", "environment.max_turns=1", "rollout.max_new_tokens=6"),
        *("rollout.group_size=4", "trainer.tasks_per_step=4", "evaluation.every=0", "checkpoint.every=0"),
    )
    for name, *more in (("sync", "trainer.steps=30"), ("ahead", "trainer.steps=60", "schedule.ahead=1")):
        done = rlcore_command([*words, f"name={name}", *more], tmp_path, timeout_s=1500)
        assert done.returncode == 0, done.stderr
    plans = planned(tmp_path, tmp_path / "runs/sync", "--gpus", "1", "--gpus", "2", "schedule.ahead=1")
    for key, name in (((1, 0), "sync"), ((2, 1), "ahead")):
        measured = measured_step_s(tmp_path / "runs" / name, after=3)
        print(f"{name}: measured {measured:.2f} s, planned {plans[key]['step_s']:.2f} s")
        assert plans[key]["step_s"] == pytest.approx(measured, rel=0.1)
