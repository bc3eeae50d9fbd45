"""One whole GRPO step against TRL's GRPOTrainer and against what the hardware allows.

64 rollouts in 8 groups, prompts of about 150 tokens, exactly 128 new tokens, a Qwen2 of 5.3 million parameters in
float32, the same folder, prompts and reward, a KL term towards the reference policy, one optimiser step. Each side runs
in a process of its own that stays alive, and all of them take turns. TRL runs at per-device batches of 8, 16 and 64 of
the same 64 rollouts; the fastest counts. Ours is a whole run with its records and checks, as ``rlcore run`` makes it.

``trl`` is time. ``trl-memory`` is the peak of anonymous memory above the imported libraries; the numbers are gigabytes.
``hardware`` compares with a decoding loop without any objects plus the step's matrix products alone.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers
import torch
from _hardware_floor import decode_s, gemm_rate, train_s
from comparison import Comparison
from grpo_step_task import BUILDER, GROUP_SIZE, NEW_TOKENS, ROLLOUTS, corpus
from rlcore_trainer.models.config import TinyQwen2Config
from rlcore_trainer.models.tiny_qwen2 import build
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config
from worker import Worker

VERSIONS = ("rlcore-trainer", "rlcore-rollout", "torch", "transformers")
BATCHES = (8, 16, 64)
WARM_UPS = 3


def build_model(folder: Path) -> Qwen2Config:
    """Random weights, except that the end token cannot be sampled, so that every completion has its full length.

    One dimension of the residual stream is the same positive number for every token that is read, and no layer writes
    to it; the end token's row of the (tied) output layer is the negative of the others' there, and the last norm lifts
    that dimension.
    """
    build(folder, corpus(), 0, TinyQwen2Config(**BUILDER))
    config = Qwen2Config.from_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if "embed_tokens" in name:
            weight[:, 0] = 1.0
            weight[config.eos_token_id, 0] = -1.0
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0.0
        if name == "model.norm.weight":
            weight[0] = 100.0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return config


class Side:
    """A process and what its steps said; memory is watched while it warms up."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.worker = Worker(command, environment)
        atexit.register(self.worker.close)
        self.reports: list[dict[str, Any]] = []
        for _ in range(WARM_UPS):
            self.step(sampled=True)

    def step(self, *, sampled: bool = False) -> float:
        """Seconds of one step, which must have sampled what it should."""
        report = self.worker.step(sampled=sampled)
        if "new_tokens" in report:  # the first word of a process comes before its first step
            assert report["new_tokens"] == ROLLOUTS * NEW_TOKENS, f"{self.name} sampled {report['new_tokens']} tokens"
            self.reports.append(report)
        return float(report.get("seconds", 0.0))


def comparisons() -> list[Comparison]:
    """Time and memory against TRL's fastest setting, time against the hardware."""
    folder = Path(tempfile.mkdtemp(prefix="grpo-step-")) / "model"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    config = build_model(folder)
    script = Path(__file__).parent / "_grpo_step_ours.py"
    ours = Side("rlcore", [sys.executable, str(script), str(folder)], dict(os.environ))
    sides = {
        batch: Side(f"TRL {batch}", peers.command("trl", "grpo_step.py", str(folder), str(batch)), peers.environment())
        for batch in BATCHES
    }
    trials = {batch: min(side.step() for _ in range(2)) for batch, side in sides.items()}
    fastest = min(trials, key=trials.__getitem__)
    for batch, seconds in trials.items():
        print(f"  TRL with {batch} per device: {seconds:.3f} s a step, peak {sides[batch].worker.peak_mb:.0f} MB")
        if batch != fastest:
            sides[batch].worker.close()
    peer, prompt = sides[fastest], ours.reports[-1]["prompt_tokens"]
    theirs = peer.reports[-1]["prompt_tokens"]
    print(f"  rlcore: peak {ours.worker.peak_mb:.0f} MB; prompts of {prompt:.0f} tokens, TRL's of {theirs:.0f}")
    print(f"  fp32 matrix products of 1024: {gemm_rate():.0f} GFLOP/s on {torch.get_num_threads()} threads")

    def hardware() -> float:
        decoding, training = (
            decode_s(config, ROLLOUTS, GROUP_SIZE, round(prompt), NEW_TOKENS),
            train_s(config, ROLLOUTS, GROUP_SIZE, round(prompt), NEW_TOKENS),
        )
        return decoding + training

    return [
        Comparison(name="trl", ours=ours.step, peer=peer.step, floor=1.5),
        Comparison(name="hardware", ours=ours.step, peer=hardware, floor=1 / 1.5),
        Comparison(
            name="trl-memory",
            ours=lambda: ours.worker.peak_mb / 1024,
            peer=lambda: peer.worker.peak_mb / 1024,
            floor=2.0,
        ),
    ]
