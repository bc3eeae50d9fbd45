"""``rlcore run`` with a learning rate at which training diverges, in each phase."""

from __future__ import annotations

from pathlib import Path

import pytest
from preloaded import rlcore_command
from safetensors.torch import load_file

SMALL = (
    *("run", "-p", "gsm8k-tools", "name=run", "model.device=cpu", "model.builder.layers=1"),
    *("checkpoint.every=1", "evaluation.every=0"),
)
REINFORCED = (
    *("rollout.group_size=4", "rollout.max_new_tokens=16", "trainer.steps=3", "trainer.tasks_per_step=5"),
    *("algorithm.overlong.buffer=30", "algorithm.entropy=0.01"),  # every step has advantages, also without rewards
)
PHASES = {
    "warm-up": (
        (*SMALL, *REINFORCED, "warmup.steps=9", "warmup.learning_rate=1e30"),
        "at warm-up step 2",
        "no checkpoint was written",
    ),
    "reinforcement": (
        (*SMALL, *REINFORCED, "warmup.steps=9", "trainer.learning_rate=1e30"),
        "at step 1",
        "runs/run/checkpoints/000000",
    ),
    "random weights": (  # the tokens that were not updated still compute finite numbers
        (*SMALL, *REINFORCED, "warmup.steps=0", "model.builder.width=32", "trainer.learning_rate=1e30"),
        "at step 1",
        "no checkpoint was written",
    ),
    "supervised": (
        (*SMALL, "-r", "sft", "trainer.demonstrations=40", "trainer.learning_rate=1e30", "trainer.rollouts=false"),
        "at step 1",
        "no checkpoint was written",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_divergence_ends_the_command_with_the_step_and_the_checkpoint(phase: str, tmp_path: Path) -> None:
    arguments, step, kept = PHASES[phase]
    done = rlcore_command(arguments, tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("error:") == 1
    assert step in done.stderr
    assert kept in done.stderr
    assert "learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
    for file in (tmp_path / "runs/run/checkpoints").glob("*/model/*.safetensors"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(file).values()), file
