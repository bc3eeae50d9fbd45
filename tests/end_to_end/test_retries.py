"""``rlcore run --retries N`` resumes a run of which a process was killed, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from finished_runs import metrics, succeeded
from preloaded import rlcore_command

LOSS = '''
import os, pathlib, signal
from rlcore_trainer.algorithms import LossOutput
from rlcore_trainer.algorithms.losses.clip import clip

def loss(inputs):
    """PPO's. After the first step, it kills the last process of the run."""
    saved = any(pathlib.Path("runs/run/checkpoints").glob("*000001*"))  # or being completed
    last = int(os.environ.get("RANK", 0)) == int(os.environ.get("WORLD_SIZE", 1)) - 1
    if saved and last and not pathlib.Path("killed").exists():
        pathlib.Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    loss, metrics = clip(inputs.logprobs_M, inputs.old_logprobs_M, inputs.advantages_M, inputs.weights_M)
    return LossOutput(loss=loss, metrics=metrics)
'''
JUDGE = """
from pydantic import BaseModel

class Judge:
    class Config(BaseModel):
        password: str

    def __init__(self, config):
        assert config.password == "hunter2-hunter2"

    def __call__(self, trajectory, task):
        return len(trajectory.final_response) % 2
"""
RUN = (
    *("run", "-p", "gsm8k-tools", "name=run", "model.device=cpu", "model.builder.layers=1", "warmup.steps=4"),
    *("trainer.steps=3", "trainer.tasks_per_step=4", "evaluation.every=0", "checkpoint.every=1"),
    *("algorithm.kl.coefficient=0.05", "algorithm.kl.estimator=k3"),  # an update also if all rewards are equal
    *("algorithm.loss=loss.py:loss", "reward.0.id=judge.py:Judge"),
)
SECRET = "reward.0.password=hunter2-hunter2"


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param((), marks=pytest.mark.slow),
        pytest.param(("strategy.id=ddp", "strategy.processes=2"), marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(300)
def test_run_is_resumed_after_a_process_was_killed(strategy: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text(LOSS, encoding="utf-8")
    (tmp_path / "judge.py").write_text(JUDGE, encoding="utf-8")
    command = [sys.executable, "-m", "rlcore", *RUN, SECRET, *strategy, "--retries", "1"]
    done = succeeded(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False))
    assert f"retry 1 of 1: resuming {tmp_path / 'runs/run'} after " in done.stderr
    assert "resumed   from step 1" in done.stdout
    assert [row["step"] for row in metrics(tmp_path / "runs/run")] == [1, 2, 3]


def test_bad_input_is_not_tried_again(tmp_path: Path) -> None:
    done = rlcore_command(["run", "-p", "gsm8k-tools", "trainer.steps=-1", "--retries", "3"], tmp_path)
    assert done.returncode == 2
    assert "trainer.steps" in done.stderr
    assert "retry" not in done.stderr
