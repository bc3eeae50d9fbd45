"""The estimated memory of short runs against their peak, beyond the program that every run needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import rlcore
from rlcore.errors import UserError

pytestmark = pytest.mark.long

# 25 million parameters. With float32, the activations of 2,048 tokens take 0.7 GiB.
MODEL = ("model.builder={layers=8, width=512, heads=8, feed_forward=1536, positions=4096}", "trainer.steps=2")
SMALL = ("trainer.max_tokens_per_batch=2048", "evaluation.every=0", "checkpoint.every=0")
SUPERVISED = ("-r", "sft", "trainer.rollouts=false", "trainer.held_out=0", "trainer.demonstrations=200")
# A new model calls no tool, so an episode has one turn of random tokens. Four of its groups fill a micro-batch.
GRPO = (
    "trainer.tasks_per_step=8",
    "rollout.group_size=4",
    "warmup.steps=0",
    "environment.max_turns=1",
    "rollout.max_new_tokens=64",
    "algorithm.kl.coefficient=0.01",
)
CASES = {
    "supervised": (*SUPERVISED, "trainer.conversations_per_step=32"),
    "supervised, few conversations": (*SUPERVISED, "trainer.conversations_per_step=4"),
    "supervised, bfloat16": (*SUPERVISED, "trainer.conversations_per_step=16", "model.dtype=bfloat16"),
    "rollouts": GRPO,
    "adapter": (*GRPO, "lora.rank=16"),
}
BYTES = {"GiB": 2**30, "MiB": 2**20}


def size(found: re.Match[str] | None) -> float:
    assert found is not None
    return float(found[1]) * BYTES[found[2]]


@pytest.mark.parametrize("case", CASES)
def test_estimate_is_close_to_the_peak(case: str, tmp_path: Path) -> None:
    # A new process: a forked one would share memory with the process of the tests.
    command = [str(Path(sys.executable).with_name("rlcore")), "run", "-p", "gsm8k-tools"]
    done = subprocess.run(
        [*command, *CASES[case], *MODEL, *SMALL, f"runs={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    program = size(re.search(r"program ([\d.]+) ([GM]iB)", done.stdout))
    peak = size(re.search(r"peak ([\d.]+) ([GM]iB)", done.stdout)) - program
    estimate = size(re.search(r"estimated ([\d.]+) ([GM]iB)", done.stdout)) - program
    assert 0.85 < estimate / peak < 1.25, done.stdout


def test_run_that_needs_too_much_memory_ends_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("rlcore_trainer.controller.build.starting_policy", refuse)
    monkeypatch.setattr("rlcore.session.memory.memory_bytes", lambda: 3 * 2**29)
    monkeypatch.setattr("rlcore.session.memory.used_bytes", lambda: 0)
    runs = {"runs": str(tmp_path), "model": {"builder": {"layers": 30, "width": 256}}}
    with pytest.raises(UserError, match=r"(?s)needs more memory.*activations.*max_tokens_per_batch") as caught:
        rlcore.train("gsm8k-tools", recipe="sft", **runs)
    assert caught.value.exit_status == 2
    monkeypatch.setattr("rlcore.session.memory.memory_bytes", lambda: 2**28)
    with pytest.raises(UserError, match=r"(?s)needs more memory.*fix +an adapter"):
        rlcore.train("gsm8k-tools", recipe="sft", **runs)
    assert list(tmp_path.iterdir()) == []
