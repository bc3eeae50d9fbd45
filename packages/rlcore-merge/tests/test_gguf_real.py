"""The file of a published model: SmolLM2-135M-Instruct in Q4_1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from rlcore_merge import merge
from rlcore_merge.sources import gguf_header
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
    "<|im_start|>user\nWhat is 7 × 8?<|im_end|>\n<|im_start|>assistant\n",
    "def f(x):\n\treturn x**2  # naïve 🙂\n\n\n  ",
)


@pytest.mark.long
def test_published_file_is_converted_to_the_bit(smollm2_gguf: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    merged = merge(smollm2_gguf, out)
    assert (merged.tensors, merged.notes) == (272, ())
    where = {"gguf_file": smollm2_gguf.name, "local_files_only": True}
    expected = AutoModelForCausalLM.from_pretrained(smollm2_gguf.parent, dtype=torch.float32, **where).state_dict()
    with safe_open(out / "model.safetensors", "pt") as file:
        assert set(file.keys()) == expected.keys() - {"lm_head.weight"}
        for name in file.keys():  # noqa: SIM118
            assert torch.equal(file.get_tensor(name).view(torch.int32), expected[name].view(torch.int32)), name
    theirs = AutoTokenizer.from_pretrained(smollm2_gguf.parent, **where)
    ours = AutoTokenizer.from_pretrained(out)
    for text in TEXTS:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
        assert ours.decode(ours(text)["input_ids"]) == text
    assert (ours.eos_token, ours.chat_template) == ("<|im_end|>", theirs.chat_template)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"], config["num_hidden_layers"]) == (["LlamaForCausalLM"], 30)
    assert "quantization_config" not in config


@pytest.mark.slow
def test_header_of_a_published_file_is_far_below_the_limits(smollm2_gguf: Path) -> None:
    header = gguf_header.read(smollm2_gguf)
    assert (len(header.metadata), len(header.tensors)) == (33, 272)
    assert header.data < gguf_header.MOST_BYTES / 20
