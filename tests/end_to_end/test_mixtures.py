"""Several environments in one run: real rollouts and updates, and an exact resume after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from example_plugin import search_path
from finished_runs import metrics
from killed_runs import content, differences
from rlcore.plugins.creation import create
from rlcore.rollouts.records import read_groups

MIXTURE = """\
[model.builder]
layers = 1

[warmup]
steps = 8
demonstrations_per_step = 8

[[environment]]
id = "gsm8k-tools"
name = "with-calculator"
weight = [[1, 2.0], [3, 1.0]]
max_turns = 2

[environment.data]
limit = 40

[[environment]]
id = "gsm8k-tools"
name = "without"
weight = 0.5
tools = []
max_turns = 1
reward = [{ id = "math-numeric-equal", weight = 0.5 }]

[[environment]]
id = "doors-of-hall"

[[environment.reward]]
id = "doors-of-hall-opened"

[trainer]
steps = 3
tasks_per_step = 6
learning_rate = 1e-3

[algorithm]
entropy = 0.01                    # every step has a gradient, also without rewards

[curriculum]
success = [0.0, 0.9]

[rollout]
group_size = 4

[evaluation]
every = 2
tasks = 4

[checkpoint]
every = 1
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    (folder / "mixture.toml").write_text(MIXTURE, encoding="utf-8")
    if not (folder / "plugin").exists():
        create("environment", "doors-of-hall", folder / "plugin")
    path = os.pathsep.join(search_path(folder / "plugin", folder / "site"))
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "rlcore", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def finish(folder: Path, *arguments: str) -> None:
    assert start(folder, *arguments).wait(timeout=400) == 0, (folder / "output.txt").read_text("utf-8")[-3000:]


FIRST = ("run", "-p", "gsm8k-tools", "-c", "mixture.toml", "name=run")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_run_of_three_environments_resumes_identically(equal_rows: None, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(whole, *FIRST)
    process = start(killed, *FIRST)
    while not (killed / "runs" / "run" / "checkpoints" / "000001").is_dir():
        assert process.poll() is None, (killed / "output.txt").read_text("utf-8")[-3000:]
        time.sleep(0.001)
    process.kill()
    process.wait()
    finish(killed, "run", "--resume", "runs/run")
    run = whole / "runs" / "run"
    assert differences(content(run), content(killed / "runs" / "run")) == []

    rows = metrics(run)
    shares = [[row[f"mixture/{name}"] for name in ("with-calculator", "without", "doors-of-hall")] for row in rows[1:]]
    assert shares[0] == [3, 1, 2]  # 6 × 2/3.5, 6 × 0.5/3.5 and 6 × 1/3.5, rounded
    assert all(sum(counts) == 6 for counts in shares)
    assert {f"evaluation/{name}/accuracy" for name in ("with-calculator", "without", "doors-of-hall")} <= set(rows[-1])
    for step in range(1, 4):
        groups = list(read_groups(run / "rollouts" / f"train-{step:06d}.jsonl.gz"))
        for group in groups:
            assert len(group.trajectories) == 4
            rewarded = "doors-of-hall-opened" if group.task.environment == "doors-of-hall" else "math-numeric-equal"
            assert all(set(one.rewards) == {rewarded} for one in group.trajectories)
    assert all(len(group.trajectories[0].tools) == (group.task.environment == "with-calculator") for group in groups)
