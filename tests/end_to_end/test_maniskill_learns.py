"""The recipe control trains on an environment of another package: ManiSkill's PickCube-v1."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from finished_runs import ONE_THREAD, commit, evaluations, metrics, rlcore
from workspace import ROOT

PYTHON = os.environ.get("RLCORE_MANISKILL_PYTHON") or (sys.executable if importlib.util.find_spec("mani_skill") else "")
"""An interpreter with mani-skill, rlcore and rl-plugin-gymnasium. RoboTwin needs another one, with another mplib."""

ARGUMENTS = (
    'environment.arguments={obs_mode="state",reward_mode="normalized_dense",control_mode="pd_joint_delta_pos",'
    'max_episode_steps=50,sim_backend="physx_cpu",render_backend="cpu"}'
)
COMMAND = (
    *("run", "-p", "gymnasium", "-r", "control", "environment.id=mani_skill.envs:PickCube-v1", ARGUMENTS),
    *("environment.reward_scale=1", "algorithm.advantage.gamma=0.8", "trainer.steps=200", "evaluation.every=40"),
    *("data.evaluation=32", "evaluation.success=25", "sampler.vector=sync"),
)


@pytest.mark.proof
@pytest.mark.skipif(not PYTHON, reason="needs mani-skill, here or in the interpreter RLCORE_MANISKILL_PYTHON")
@pytest.mark.timeout(7200)
def test_an_environment_of_another_package_trains(tmp_path: Path) -> None:
    started = time.monotonic()
    rlcore(*COMMAND, f"runs={tmp_path}", "name=run", python=PYTHON, variables={**ONE_THREAD, "LP_NUM_THREADS": "1"})
    seconds, run = time.monotonic() - started, tmp_path / "run"
    returns = evaluations(run, "reward")
    write_table(returns, metrics(run)[-1]["info/success"], seconds)
    assert returns[max(returns)] > 2 * returns[min(returns)]


def write_table(returns: Mapping[int, float], success: float, seconds: float) -> None:
    """Write the page of results."""
    show = "from importlib.metadata import version; print(version('mani-skill'))"
    version = subprocess.run([PYTHON, "-c", show], capture_output=True, text=True, check=True)
    steps = sorted(returns)
    lines = [
        "# maniskill: PPO on PickCube-v1",
        "",
        "Mean return of the greedy policy in 32 held-out episodes of 50 steps, by training step. The reward of a step",
        "is ManiSkill's dense reward, normalised to at most 1. A training step plays 16 episodes. In the last one,",
        f"{success:.0%} of them put the cube at the goal. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_maniskill_learns.py`",
        f"at commit {commit()} with mani-skill {version.stdout.strip()}, on {os.cpu_count()}",
        f"cores, in {seconds:.0f} s.",
        "",
        "| " + " | ".join(f"step {step}" for step in steps) + " |",
        "|" + "---|" * len(steps),
        "| " + " | ".join(f"{returns[step]:.2f}" for step in steps) + " |",
        "",
        "```bash",
        shlex.join(("rlcore", *COMMAND)),
        "```",
    ]
    (ROOT / "docs" / "results" / "maniskill.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
