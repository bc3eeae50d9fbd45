"""Rescore the rollouts of a run without rlcore-rollout, rlcore-trainer and torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rlcore.rollouts.records import write_groups
from rlcore.testing import make_trajectory
from rlcore.types import Group, RewardResult, Task

CONFIG = """
requires = ["rlcore-rollout", "rlcore-trainer", "rl-plugin-string-equal"]
[model]
path = "builtin:tiny-qwen2"
[environment]
id = "gsm8k-tools"
[[reward]]
id = "string-equal"
weight = 1.0
field = "answer"
ignore = ["case"]
[rollout]
engine = "torch"
[rollout.torch]
slots = 8
[algorithm]
advantage = "grpo"
[trainer]
id = "policy-gradient"
"""
PROGRAM = """
import sys
from rlcore.cli import main
status = main()
heavy = [name for name in ("torch", "numpy", "transformers", "rlcore_rollout", "rlcore_trainer") if name in sys.modules]
assert not heavy, heavy
sys.exit(status)
"""


def test_rescore_needs_only_core_and_plugin(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for folder in ("rollouts", "checkpoints"):
        (run / folder).mkdir(parents=True)
    (run / "config.toml").write_text(CONFIG)
    trajectories = [
        make_trajectory(text).replace(reward=0.0, rewards={"string-equal": RewardResult(value=0.0)}, sibling=n)
        for n, text in enumerate(["The answer is 72.", "The answer is 71."])
    ]
    task = Task(id="t", messages=(), fields={"answer": "72"})
    write_groups(run / "rollouts" / "evaluation-000001.jsonl.gz", [Group(task=task, trajectories=tuple(trajectories))])
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, "data", "rescore", "run", "reward.0.id=math-numeric-equal", "--json"],
        cwd=tmp_path,
        env={**os.environ, "RLCORE_DISABLE_PLUGINS": "rlcore-rollout,rlcore-trainer,rlcore-merge"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)["evaluation-000001"]
    assert (found["before"]["mean"], found["now"]["mean"], found["changed"]) == (0.0, 0.5, 1)
