"""Prepare, train and evaluate on real GSM8K rows, with the real Qwen tokenizers and tiny models."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from pathlib import Path

import pytest
from finished_runs import metrics
from preloaded import rlcore_command

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("RLCORE_DATA" not in os.environ, reason="requires RLCORE_DATA with GSM8K and tokenizers"),
]
SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 2048}


def rlcore(*arguments: str, folder: Path) -> str:
    done = rlcore_command(arguments, folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def write_model(folder: Path, kind: str) -> None:
    """A random model with the architecture and the tokenizer of the family."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    folder.mkdir()
    source = Path(os.environ["RLCORE_DATA"]) / "tokenizers"
    for path in (source / kind).iterdir():
        shutil.copyfile(path, folder / path.name)
    tokenizer = runpy.run_path(str(source / "assemble.py"))["assemble"](kind)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    torch.manual_seed(0)
    sizes = {"vocab_size": 151_936, "tie_word_embeddings": True, "eos_token_id": 151_645, **SIZE, **HEADS}
    if kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=16))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**sizes))
    model.save_pretrained(folder)


@pytest.mark.parametrize("kind", ["qwen2.5-instruct", "qwen3"])
def test_real_rows_with_real_tokenizers(kind: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model", kind)
    rows = Path(os.environ["RLCORE_DATA"]) / "gsm8k"
    for split, limit in (("train", 64), ("test", 8)):
        out = f"data/gsm8k_{split}.jsonl"
        output = rlcore(
            "data", "prepare", "gsm8k-tools", f"source={rows}/{split}.jsonl", f"out={out}", f"limit={limit}",
            folder=tmp_path,
        )  # fmt: skip
        assert len((tmp_path / out).read_text(encoding="utf-8").splitlines()) == limit, output
    small = ["trainer.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2", "rollout.max_new_tokens=16"]
    rlcore(
        "run", "-p", "gsm8k-tools", "-r", "qwen2.5-3b", "model.path=model", "name=real", *small,
        "warmup.steps=4", "warmup.demonstrations_per_step=4", "warmup.learning_rate=1e-3", "evaluation.tasks=4",
        folder=tmp_path,
    )  # fmt: skip
    trained = [line for line in metrics(tmp_path / "runs/real") if "tokens/trained" in line]
    assert [line["step"] for line in trained] == [1, 2]
    assert all(line["tokens/trained"] > 0 and line["gradient_norm"] > 0 for line in trained)
    assert all(line["logprob_gap/max"] < 1e-3 for line in trained)
    log = (tmp_path / "runs/real/output.log").read_text(encoding="utf-8")
    losses = [float(line.split("loss")[1].split()[0]) for line in log.splitlines() if line.startswith("warm-up")]
    assert losses[-1] < losses[0]
    shown = rlcore("eval", "runs/real", "evaluation.tasks=4", folder=tmp_path)
    assert "accuracy" in shown
    assert "95 %" in shown
