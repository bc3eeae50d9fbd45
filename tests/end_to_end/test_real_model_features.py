"""Features of training on a pretrained model in bfloat16: one step of each, exact resume, and a merged adapter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from preloaded import rlcore_command  # noqa: E402
from rlcore.types import LossMask, TokenIds  # noqa: E402
from rlcore_trainer.batching.packing import TrainingSequence, pack  # noqa: E402
from rlcore_trainer.policy.causal_lm import CausalLanguageModel  # noqa: E402
from rlcore_trainer.policy.forward import PackedForward, PlainForward  # noqa: E402

pytestmark = pytest.mark.proof

PROBLEM = {"question": "Mia has 4 boxes of 6 pens. How many pens has she?", "answer": "4*6=<<4*6=24>>24\n#### 24"}
REWARD = "def length(trajectory, task):\n    return min(1.0, len(trajectory.messages[-1].text) / 500)\n"
BASE = (
    *("run", "-p", "gsm8k-tools", "-r", "smollm2-135m-grpo", "data.train=data.jsonl", "data.evaluation=data.jsonl"),
    *("reward.0.id=mine.py:length", "environment.max_turns=1", "rollout.max_new_tokens=24", "rollout.temperature=1"),
    *("trainer.tasks_per_step=1", "rollout.group_size=4", "trainer.lr_warmup_steps=0", "trainer.steps=1"),
)
FEATURES = {
    "adapter": ("lora.rank=8", "trainer.learning_rate=1e-3"),
    "value head": ("algorithm.advantage=gae", "critic.model=head"),
    "critic": ("algorithm.advantage=gae", "critic.model=copy"),
    "kl": ("algorithm.kl.coefficient=0.05", "trainer.epochs=2"),
    "importance": ("algorithm.rollout_importance_sampling.level=token",),
    "vllm": ("rollout.engine=vllm",),
}
MEAN_GAP = 0.05
"""Between engine and trainer on 96 sampled tokens. The mean over many tokens is 0.018 nats."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a problem and a reward by which all answers differ."""
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(REWARD, encoding="utf-8")
    rlcore(tmp_path, "data", "prepare", "gsm8k-tools", "source=problems.jsonl", "out=data.jsonl")
    return tmp_path


def rlcore(folder: Path, *arguments: str) -> str:
    done = rlcore_command(arguments, folder, timeout_s=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return str(done.stdout)


@pytest.mark.parametrize("feature", FEATURES)
def test_feature_trains_in_bfloat16(feature: str, place: Path, smollm2_bf16: Path) -> None:
    answer = rlcore(place, *BASE, f"model={smollm2_bf16}", *FEATURES[feature], "name=run", "--json")
    metrics = json.loads(answer)["metrics"]
    assert metrics["updates"] >= 1
    assert 0 < metrics["gradient_norm"] < 1000
    assert metrics["logprob_gap/mean"] < MEAN_GAP
    if feature == "adapter":
        check_merged(place)


def check_merged(place: Path) -> None:
    """The merged adapter computes what the adapter computes, and another result than the model below it."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    rlcore(place, "merge", "runs/run", "--out", "merged", "--dtype", "fp32")
    adapter = place / "runs" / "run" / "checkpoints" / "last" / "model"
    base = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = logits(model)
    expected = logits(PeftModel.from_pretrained(model, adapter))
    found = logits(AutoModelForCausalLM.from_pretrained(place / "merged", dtype=torch.float32))
    assert (found - expected).abs().max() < 1e-3
    assert (before - expected).abs().max() > 1e-2


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([[1, 5, 9, 3, 20, 400, 17]])).logits


def test_killed_run_resumes_exactly_in_bfloat16(place: Path, smollm2_bf16: Path) -> None:
    words = (*BASE, f"model={smollm2_bf16}", "trainer.steps=2", "checkpoint.every=1")
    rlcore(place, *words, "name=whole")
    # The preloaded process computes with one thread, and products on a processor with AMX depend on their number.
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "rlcore", *words, "name=killed"], cwd=place, env=one_thread)
    while not (place / "runs" / "killed" / "checkpoints" / "000001").is_dir():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    rlcore(place, "run", "--resume", "runs/killed")
    expected, found = (
        (place / "runs" / name / "checkpoints" / "000002" / "model" / "model.safetensors").read_bytes()
        for name in ("whole", "killed")
    )
    assert found == expected


def test_packed_rows_equal_plain_ones_in_bfloat16(smollm2_bf16: Path) -> None:
    """Both round differently, and neither differs more from float32 than the other."""
    wide, half = (
        CausalLanguageModel.load(smollm2_bf16, dtype=dtype, device=torch.device("cpu"))
        for dtype in ("float32", "bfloat16")
    )
    generator = torch.Generator().manual_seed(0)
    sequences = [sequence(torch.randint(0, 40_000, (length,), generator=generator).tolist()) for length in (30, 70, 90)]
    exact = evaluated(wide, PackedForward(), sequences)
    assert (exact - evaluated(wide, PlainForward(), sequences)).abs().max() < 1e-3
    packed, plain = (
        float((evaluated(half, forward, sequences) - exact).abs().mean())
        for forward in (PackedForward(), PlainForward())
    )
    assert packed < plain < 0.2


def sequence(ids: Sequence[int]) -> TrainingSequence:
    mask = LossMask([False] * 8 + [True] * (len(ids) - 8))
    return TrainingSequence(token_ids=TokenIds(ids), loss_mask=mask, prompt_length=8)


def evaluated(policy: CausalLanguageModel, forward: Any, sequences: Sequence[TrainingSequence]) -> Any:
    (batch,) = pack(sequences, 1000, policy.device)
    with torch.no_grad(), forward.computing(policy.module):
        return forward.evaluate(policy.module, batch, 1.0)[0].float()
