"""``rlcore merge RUN`` checks the checkpoint of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from preloaded import rlcore_command

RUN = ("run", "-p", "gsm8k-tools", "trainer.steps=1", "trainer.tasks_per_step=2", "evaluation.every=0", "name=one")


@pytest.mark.long
def test_damaged_checkpoint_of_a_run_is_not_merged(tmp_path: Path) -> None:
    done = rlcore_command([*RUN, "warmup.steps=0", "rollout.group_size=2"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert rlcore_command(["merge", "runs/one", "--out", "merged"], tmp_path).returncode == 0
    weights = tmp_path / "runs/one/checkpoints/000001/model/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    damaged = rlcore_command(["merge", "runs/one", "--out", "again"], tmp_path)
    assert damaged.returncode == 2
    assert "model/model.safetensors" in damaged.stderr
    assert not (tmp_path / "again").exists()
