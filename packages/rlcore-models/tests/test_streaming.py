"""A model of streamed weights computes the bits of the model that they come from, in the same memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError
from rlcore_models.cpu_linear import use_onednn
from rlcore_models.lora import settings_of
from rlcore_models.quantization import keep_layout, loading_options
from rlcore_models.streaming import fill, named_tensors, streamed_model
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    MambaConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from vision_models import FAMILIES, vision_language_model

SIZES = {"hidden_size": 256, "intermediate_size": 300, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS: dict[str, Callable[[], Any]] = {
    "tied": lambda: Qwen2Config(vocab_size=97, num_key_value_heads=2, tie_word_embeddings=True, **SIZES),  # type: ignore[arg-type]
    "untied": lambda: Qwen2Config(vocab_size=97, num_key_value_heads=2, tie_word_embeddings=False, **SIZES),  # type: ignore[arg-type]
    "gemma2": lambda: Gemma2Config(vocab_size=97, num_key_value_heads=2, head_dim=16, **SIZES),  # type: ignore[arg-type]
    "gpt2": lambda: GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4),
    "neox": lambda: GPTNeoXConfig(vocab_size=97, **SIZES),  # type: ignore[arg-type]
    "mamba": lambda: MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2),
    **{family: lambda family=family: vision_language_model(family) for family in FAMILIES},  # type: ignore[misc]
}


def built(name: str, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    made = MODELS[name]()
    model = made if isinstance(made, nn.Module) else AutoModelForCausalLM.from_config(made)
    model.save_pretrained(folder)
    model = type(model).from_pretrained(folder, dtype=dtype)  # whose buffers stay float32
    use_onednn(model)
    return model.eval()


@torch.no_grad()
def logits(model: Any) -> Any:
    return model(input_ids=torch.arange(9)[None], use_cache=False).logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_streamed_model_is_the_model_without_a_copy(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    live = built(name, tmp_path, dtype)
    state = torch.random.get_rng_state()
    model = streamed_model(tmp_path, named_tensors(live))
    assert torch.equal(state, torch.random.get_rng_state()), "a run continues with its random numbers"
    assert torch.equal(logits(model), logits(live))
    own = {name: parameter.data_ptr() for name, parameter in live.named_parameters()}
    assert {name: parameter.data_ptr() for name, parameter in model.named_parameters()} == own
    assert not any(parameter.requires_grad for parameter in model.parameters())
    with torch.no_grad():
        next(live.parameters()).add_(1.0)
    fill(model, named_tensors(live))
    assert torch.equal(logits(model), logits(live))


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("quantization", ["none", "nf4"])
@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}], ids=str)
def test_adapter_and_quantised_base_are_streamed(options: Any, quantization: str, tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft")
    built("tied", tmp_path)
    if quantization != "none":
        pytest.importorskip("bitsandbytes")
    cpu = torch.device("cpu")
    more = loading_options(quantization, dtype=torch.float32, device=cpu)
    live: Any = Qwen2ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, **more)
    keep_layout(live)
    peft.inject_adapter_in_model(peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], **options), live)
    for name, parameter in live.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    model = streamed_model(tmp_path, named_tensors(live), quantization=quantization, adapter=settings_of(live))
    assert torch.equal(logits(model), logits(live.eval()))
    assert {p.data_ptr() for p in model.parameters()} == {p.data_ptr() for p in live.parameters()}


def missing(weights: list[NamedTensor]) -> list[NamedTensor]:
    return weights[1:]


def unknown(weights: list[NamedTensor]) -> list[NamedTensor]:
    return [*weights, weights[0]._replace(name="model.more.weight")]


def cut(weights: list[NamedTensor]) -> list[NamedTensor]:
    return [weights[0]._replace(tensor=weights[0].tensor[1:]), *weights[1:]]


@pytest.mark.parametrize(
    ("damage", "found"), [(missing, "embed_tokens"), (unknown, "model.more.weight"), (cut, r"\[97, 256\]")]
)
def test_unfitting_weights_are_rejected(damage: Any, found: str, tmp_path: Path) -> None:
    live = built("tied", tmp_path)
    model = streamed_model(tmp_path, named_tensors(live))
    with pytest.raises(EngineError, match=found):
        fill(model, damage(list(named_tensors(live))))
