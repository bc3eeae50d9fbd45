"""An adapter of rank 16 on all linear layers: rlcore merge against peft's merge_and_unload and save_pretrained."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from _merge_sides import Sides, every_size
from comparison import Comparison

VERSIONS = ("rlcore-merge", "torch", "numpy")
REFERENCE = Path(__file__).parents[1] / "references" / "checkpoints"
PEER = Path(os.environ.get("RLCORE_PEFT_PYTHON", REFERENCE / ".venv" / "bin" / "python"))
HIDDEN, INNER, VOCABULARY, RANK = 1024, 4096, 32000, 16

MERGE = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")
PeftModel.from_pretrained(model, sys.argv[2]).merge_and_unload().save_pretrained(sys.argv[3])
"""


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Three comparisons per size."""
    return every_size(_sides, PEER, smoke=smoke)


def write(folder: Path, gigabytes: float) -> tuple[Path, Path]:
    """Write a random base model and an adapter for it."""
    import torch
    from safetensors.torch import save_file

    layers = max(1, round((gigabytes * 1e9 - 2 * VOCABULARY * HIDDEN * 2) / (16.8e6 * 2)))
    base, adapter = folder / "base", folder / "adapter"
    base.mkdir()
    adapter.mkdir()
    tensors, low = {}, {}

    def put(name: str, *shape: int) -> None:
        tensors[name] = torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02)

    put("model.embed_tokens.weight", VOCABULARY, HIDDEN)
    put("lm_head.weight", VOCABULARY, HIDDEN)
    put("model.norm.weight", HIDDEN)
    linear = {f"self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"}
    linear |= {"mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
    for number in range(layers):
        prefix = f"model.layers.{number}."
        for name, (outputs, inputs) in linear.items():
            put(f"{prefix}{name}.weight", outputs, inputs)
            low[f"base_model.model.{prefix}{name}.lora_A.weight"] = torch.randn(RANK, inputs) * 0.02
            low[f"base_model.model.{prefix}{name}.lora_B.weight"] = torch.randn(outputs, RANK) * 0.02
        for name in ("q", "k", "v"):
            put(f"{prefix}self_attn.{name}_proj.bias", HIDDEN)
        put(f"{prefix}input_layernorm.weight", HIDDEN)
        put(f"{prefix}post_attention_layernorm.weight", HIDDEN)
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    save_file(low, adapter / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "vocab_size": VOCABULARY, "num_hidden_layers": layers, "num_attention_heads": 16, "num_key_value_heads": 16,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 32,
        "base_model_name_or_path": str(base),
        "target_modules": [name.rpartition(".")[2] for name in linear],
    }  # fmt: skip
    (adapter / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return base, adapter


def _sides(folder: Path, gigabytes: float) -> Sides:
    base, adapter = write(folder, gigabytes)
    sources = [base / "model.safetensors", adapter / "adapter_model.safetensors"]
    return Sides(
        ours=[sys.executable, "-m", "rlcore", "merge", str(adapter), "--base", str(base), "--out"],
        peer=[str(PEER), "-c", MERGE, str(base), str(adapter)],
        sources=sources,
        written=sources[0].stat().st_size,
        out=folder / "out",
    )
