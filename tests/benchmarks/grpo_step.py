"""A full GRPO step against the GRPOTrainer of TRL and against the hardware limit.

A step has 64 rollouts in 8 groups, prompts of about 150 tokens, exactly 128 new tokens, a KL term with the reference
policy and one optimiser step. The model is a Qwen2 with 5.3 million parameters in float32. Both sides use the same
folder, prompts and reward. Each side runs in its own process, and all of them take turns. TRL runs the 64 rollouts with
per-device batches of 8, 16 and 64, and the fastest counts. Ours is a run of ``rlcore run`` with its records and checks,
and its micro-batches hold as many rollouts as those of TRL, because the size of a micro-batch decides the memory.

``trl`` compares time. ``trl-memory`` compares the peak of anonymous memory above the imported libraries, in GB. Ours is
that of a second process, which returns freed memory to the system, as a run does that needs most of the machine's.
``hardware`` compares with a minimal decoding loop plus the matrix products of the step.

With ``--model FOLDER``, a step of this model has 32 rollouts of 64 tokens in groups of 8. Instead of ``hardware``,
``bfloat16`` and ``adapter`` compare our step in bfloat16 and of an adapter with the one of all weights in float32.
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
from comparison import Absent, Comparison
from grpo_step_task import BUILDER, SIZES, Size, corpus
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from worker import Worker

VERSIONS = ("rlcore-trainer", "rlcore-rollout", "torch", "transformers")
BATCHES = (8, 16, 64)
WARM_UPS = 3
VARIANTS = {"bfloat16": ("model.dtype=bfloat16",), "adapter": ("lora.rank=16",)}


def build_model(folder: Path, model: Path | None) -> Any:
    """A model that never samples the end token, so that every completion has its full length.

    It has random weights, or those of ``model`` in float32.

    One dimension of the residual stream has the same positive value for every input token, and no layer changes it. In
    this dimension, the row of the end token in the (tied) output layer is negative, and the last norm amplifies it.
    """
    if model is None:
        build(folder, corpus(), 0, TinyQwen2Config(**BUILDER))
    else:
        shutil.copytree(model, folder)
    config = AutoConfig.from_pretrained(folder)
    weights = {name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()}
    for name, weight in weights.items():
        if "embed_tokens" in name:
            weight[:, 0] = 1.0
            weight[config.eos_token_id, 0] = -30.0
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0.0
        if name == "model.norm.weight":
            weight[0] = 100.0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return config


class Side:
    """A process and the reports of its steps. Memory is sampled during warm-up."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], size: Size, warm_ups: int) -> None:
        self.name, self._new_tokens = name, size.rollouts * size.new_tokens
        self.worker = Worker(command, environment)
        atexit.register(self.worker.close)
        self.reports: list[dict[str, Any]] = []
        for _ in range(warm_ups):
            self.step(sampled=True)

    def step(self, *, sampled: bool = False) -> float:
        """Seconds of one step, with a check of the number of sampled tokens."""
        report = self.worker.step(sampled=sampled)
        if "new_tokens" in report:  # the first report comes before the first step
            assert report["new_tokens"] == self._new_tokens, f"{self.name} sampled {report['new_tokens']} tokens"
            self.reports.append(report)
        return float(report.get("seconds", 0.0))


def fastest(folder: Path, size_name: str, batches: tuple[int, ...], warm_ups: int) -> tuple[int, Side]:
    """TRL's fastest batch size, and its process. The other processes end."""
    sides = {}
    for batch in batches:
        command = peers.command("trl", "grpo_step.py", str(folder), size_name, str(batch))
        sides[batch] = Side(f"TRL {batch}", command, peers.environment(), SIZES[size_name], warm_ups)
    trials = {batch: min(side.step() for _ in range(2)) for batch, side in sides.items()}
    best = min(trials, key=trials.__getitem__)
    for batch, seconds in trials.items():
        print(f"  TRL with {batch} per device: {seconds:.3f} s a step, peak {sides[batch].worker.peak_mb:.0f} MB")
        if batch != best:
            sides[batch].worker.close()
    print(f"  TRL: prompts of {sides[best].reports[-1]['prompt_tokens']:.0f} tokens")
    return best, sides[best]


def comparisons(*, smoke: bool = False, model: Path | None = None) -> list[Comparison]:
    """Time and memory against the fastest setting of TRL, and time against the hardware limit or other settings."""
    folder = Path(tempfile.mkdtemp(prefix="grpo-step-")) / "model"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    config = build_model(folder, model)
    script = Path(__file__).parent / "_grpo_step_ours.py"
    size_name, batches, warm_ups = ("smoke", BATCHES[:1], 2) if smoke else ("full", BATCHES, WARM_UPS)
    if model is not None:
        size_name, batches, warm_ups = "model", BATCHES[:2], 1
    size = SIZES[size_name]
    missing = peers.missing("trl") if smoke else ""
    batch, peer = (batches[0], None) if missing else fastest(folder, size_name, batches, warm_ups)
    command = [sys.executable, str(script), str(folder), size_name, str(batch)]

    def rlcore(name: str, freed: str, *words: str) -> Side:
        side = Side(name, [*command, freed, *words], dict(os.environ), size, warm_ups)
        print(f"  {name}: {side.reports[-1]['seconds']:.3f} s a step, peak {side.worker.peak_mb:.0f} MB")
        return side

    frugal = rlcore("rlcore, freed memory returned", "returned", "model.dtype=float32")
    frugal.worker.close()
    ours = rlcore("rlcore", "kept", "model.dtype=float32")
    prompt = ours.reports[-1]["prompt_tokens"]
    print(f"  rlcore: prompts of {prompt:.0f} tokens")
    print(f"  fp32 matrix products of 1024: {gemm_rate():.0f} GFLOP/s on {torch.get_num_threads()} threads")

    work = size.rollouts, size.group_size, round(prompt), size.new_tokens

    def hardware() -> float:
        decoding, training = (
            decode_s(config, *work),
            train_s(config, *work),
        )
        return decoding + training

    def memory(name: str, one: Side, other: Side | None, floor: float) -> Comparison:
        measured = (lambda: other.worker.peak_mb / 1024) if other else Absent(missing)
        return Comparison(name=name, ours=lambda: one.worker.peak_mb / 1024, peer=measured, floor=floor)

    trl = peer.step if peer else Absent(missing)
    found = [
        Comparison(name="trl", ours=ours.step, peer=trl, floor=1.5 if model is None else 2.2),
        memory("trl-memory", frugal, peer, 2.0),
    ]
    if model is None:
        return [*found, Comparison(name="hardware", ours=ours.step, peer=hardware, floor=1 / 1.5)]
    sides = {name: rlcore(name, "kept", *words) for name, words in VARIANTS.items()}
    return [
        *found,
        Comparison(name="bfloat16", ours=sides["bfloat16"].step, peer=ours.step, floor=2.0),
        Comparison(name="adapter", ours=sides["adapter"].step, peer=ours.step, floor=1.2),
        memory("adapter-memory", sides["adapter"], ours, 1 / 0.6),
    ]
