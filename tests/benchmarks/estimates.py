"""Memory that a run estimates before it starts, against its measured peak: within 20 %, and at most 10 % below it.

Each run prints its estimate and the peak of its memory. Without ``--model``, the runs are those of the default recipes.
With a folder of a real model, they are short supervised and GRPO runs in float32 and bfloat16, of all weights and of an
adapter, with little and with much data, sampled by the torch engine and by vLLM.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path

VERSIONS = ("rlcore-core", "rlcore-trainer", "torch", "transformers")

COMMAND = str(Path(sys.executable).with_name("rlcore"))
PEAK = re.compile(r"memory    peak ([\d.]+) ([GM]iB), estimated ([\d.]+) ([GM]iB)")
BYTES = {"GiB": 2**30, "MiB": 2**20}
ABOVE, BELOW = 0.2, 0.1
"""Tolerances. An estimate below the peak can end a run, so it is the smaller one."""
SHORT = ("trainer.steps=3", "warmup.steps=20", "evaluation.tasks=64")
RUNS = {
    "default": ("-p", "gsm8k-tools", *SHORT),
    "sft": ("-p", "gsm8k-tools", "-r", "sft", "trainer.steps=10", "evaluation.tasks=64"),
    "adapter": ("-p", "gsm8k-tools", "lora.rank=16", *SHORT),
}
"""Arguments of ``rlcore run`` by name. Peaks are reached in the first steps."""
TWO_STEPS = ("trainer.steps=2", "evaluation.every=0", "checkpoint.every=0", "model.chat_format=qwen2.5")
SUPERVISED = ("-p", "gsm8k-tools", "-r", "sft", "trainer.rollouts=false", "trainer.held_out=0", *TWO_STEPS)
# One turn, because a model without training calls no tool, and its episodes would be much shorter than their limit.
GRPO = (
    *("-p", "gsm8k-tools", "warmup.steps=0", "environment.max_turns=1", "rollout.max_new_tokens=64"),
    *("algorithm.kl.coefficient=0.001", "rollout.max_context_tokens=1024", "trainer.sync_check_every=0", *TWO_STEPS),
)


def count(*, smoke: bool = False, model: Path | None = None) -> tuple[int, int, str]:
    """The number of runs whose estimate is within the tolerance."""
    runs = real_runs(model) if model is not None else RUNS
    names = [next(iter(runs))] if smoke else list(runs)
    close = [is_close(name, *measured(runs[name])) for name in names]
    return sum(close), len(close), "estimates within 20 %"


def real_runs(model: Path) -> Mapping[str, tuple[str, ...]]:
    """The runs with a real model."""
    runs: dict[str, tuple[str, ...]] = {}
    for dtype, form in product(("float32", "bfloat16"), ("full", "adapter")):
        common = (f"model.path={model}", f"model.dtype={dtype}", *(("lora.rank=16",) if form == "adapter" else ()))
        for size in (2, 32):
            conversations = f"trainer.conversations_per_step={size}"
            runs[f"sft {dtype} {form}, {size} conversations"] = (*SUPERVISED, *common, conversations)
        engines = ("torch", "vllm") if importlib.util.find_spec("vllm") else ("torch",)
        for engine, (tasks, siblings) in product(engines, ((1, 2), (4, 8))):
            sizes = (f"trainer.tasks_per_step={tasks}", f"rollout.group_size={siblings}", f"rollout.engine={engine}")
            runs[f"grpo {dtype} {form}, {engine}, {tasks * siblings} rollouts"] = (*GRPO, *common, *sizes)
    return runs


def is_close(name: str, peak: float, estimate: float) -> bool:
    """Whether an estimate is close to the peak. Prints both."""
    gap = estimate / peak - 1
    print(f"  {name}: estimated {estimate / 2**20:,.0f} MiB, peak {peak / 2**20:,.0f} MiB ({gap:+.0%})", flush=True)
    return -BELOW <= gap <= ABOVE


def measured(arguments: tuple[str, ...]) -> tuple[float, float]:
    """The peak and the estimate of a run, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [COMMAND, "run", *arguments, f"runs={folder}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    found = PEAK.search(done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found[1]) * BYTES[found[2]], float(found[3]) * BYTES[found[4]]
