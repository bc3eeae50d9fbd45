"""A missing tensor is reported by name; unusual but complete checkpoints are accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_merge import merge
from rlcore_merge.model_config import check_complete
from safetensors.torch import load_file

CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 8, "hidden_size": 4}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
PARTS = ("input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.q_proj.bias", "mlp.up_proj.weight")


def decoder(prefix: str = "model.", layers: int = 4, parts: tuple[str, ...] = PARTS) -> list[str]:
    inside = [f"{prefix}layers.{index}.{part}" for index in range(layers) for part in parts]
    return [f"{prefix}embed_tokens.weight", *inside, f"{prefix}norm.weight"]


GPT2 = ["transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"]
GPT2 += [f"transformer.h.{n}.{part}" for n in range(2) for part in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight")]
MOE = decoder(layers=1) + decoder(layers=4, parts=(*PARTS[:3], "mlp.gate.weight", "mlp.experts.0.up_proj.weight"))
MOE = [name for name in dict.fromkeys(MOE) if not name.startswith(("model.layers.0.mlp.gate", "model.layers.0.mlp.e"))]
HYBRID = [name.replace(".3.self_attn.", ".3.linear_attn.") for name in decoder()]
SCALED = [*decoder(), *(f"model.layers.{index}.mlp.scale" for index in range(1, 4))]
MORE = [*decoder(), "model.layers.1.adapter.weight", "model.layers.3.adapter.weight"]
NO_V = [*decoder(), *(f"model.layers.{index}.self_attn.v_proj.weight" for index in range(3))]


@pytest.mark.parametrize(
    ("names", "config"),
    [
        pytest.param([*decoder(), "lm_head.weight"], UNTIED, id="output-layer"),
        pytest.param(decoder(), TIED, id="tied"),
        pytest.param(decoder(), {}, id="tied-by-default"),
        pytest.param([*decoder(), "score.weight"], UNTIED, id="value-model-with-causal-lm-architecture"),
        pytest.param([*decoder(), "lm_head.weight", "v_head.summary.weight"], UNTIED, id="value-head"),
        pytest.param(decoder(""), {**UNTIED, "architectures": ["Qwen2Model"]}, id="without-head"),
        pytest.param(GPT2, {"model_type": "gpt2", "vocab_size": 8, **TIED}, id="gpt2"),
        pytest.param([*decoder("model.language_model."), "model.visual.blocks.0.norm1.weight"], TIED, id="multimodal"),
        pytest.param([*decoder("language_model.model."), "vision_tower.layers.0.a.weight"], TIED, id="multimodal-old"),
        pytest.param(MOE, TIED, id="dense-layer-before-experts"),
        pytest.param(HYBRID, TIED, id="hybrid-attention"),
        pytest.param(SCALED, TIED, id="first-layer-without-scale"),
        pytest.param(MORE, TIED, id="extra-tensor-in-every-second-layer"),
        pytest.param(NO_V, {**TIED, "layer_types": [*["sliding"] * 3, "full"]}, id="layer-types"),
        pytest.param(
            [*decoder(), "model.layers.4.eh_proj.weight"],
            {**TIED, "num_hidden_layers": 4},
            id="multi-token-prediction-layer",
        ),
        pytest.param(
            [*decoder(), "mtp.layers.0.input_layernorm.weight", "mtp.fc.weight"],
            TIED,
            id="multi-token-prediction-stack",
        ),
        pytest.param(decoder()[:-1], {**TIED, "auto_map": {"AutoModel": "own.Model"}}, id="custom-code"),
        pytest.param([*decoder()[:-1], *decoder("model.patcher.")], TIED, id="several-stacks"),
    ],
)
def test_complete_model_passes(names: list[str], config: dict[str, Any]) -> None:
    check_complete(names, {**CONFIG, **config}, "here")


@pytest.mark.parametrize(
    ("names", "config", "lost"),
    [
        (decoder(), TIED, "model.norm.weight"),
        (decoder(""), TIED, "norm.weight"),
        (decoder(), TIED, "model.embed_tokens.weight"),
        ([*decoder(), "lm_head.weight"], UNTIED, "lm_head.weight"),
        (decoder(), TIED, "model.layers.2.self_attn.q_proj.bias"),
        (decoder(layers=2), TIED, "model.layers.1.mlp.up_proj.weight"),
        (decoder(), TIED, "model.layers.0.input_layernorm.weight"),
        (MOE, TIED, "model.layers.2.mlp.experts.0.up_proj.weight"),
        (GPT2, {"model_type": "gpt2"}, "transformer.ln_f.bias"),
        (GPT2, {"model_type": "gpt2"}, "transformer.wpe.weight"),
        (NO_V, {**TIED, "layer_types": [*["a"] * 3, "b"]}, "model.layers.1.self_attn.v_proj.weight"),
    ],
)
def test_missing_tensor_is_named(names: list[str], config: dict[str, Any], lost: str) -> None:
    with pytest.raises(UserError) as caught:
        check_complete([name for name in names if name != lost], {**CONFIG, **config}, "here")
    assert caught.value.where == "here"
    assert str(caught.value.found).startswith(lost)


def test_message_of_missing_tensors() -> None:
    lost = {"model.layers.2.self_attn.q_proj.bias", "model.norm.weight"}
    with pytest.raises(UserError) as caught:
        check_complete([name for name in decoder() if name not in lost], {**CONFIG, **TIED}, "here")
    assert str(caught.value).splitlines() == [
        "tensors are missing from the checkpoint",
        "  found  model.layers.2.self_attn.q_proj.bias, which 3 of 4 similar layers have; "
        "model.norm.weight, the final norm",
        "  from   here",
        "  fix    copy all weight files again, or save the checkpoint again",
    ]


def test_layers_without_quantisation_scales_pass() -> None:
    names = [*decoder(), "model.layers.0.mlp.up_proj.weight.absmax", "model.layers.1.mlp.up_proj.weight.absmax"]
    check_complete(names, CONFIG, "here", quantised=True)


def test_merge_of_an_incomplete_model_writes_nothing(huggingface: Callable[..., Path], tmp_path: Path) -> None:
    tensors = {
        name: torch.zeros(8, 4) if "embed" in name else torch.zeros(4) for name in decoder() if "proj" not in name
    }
    complete = huggingface(tensors, {**CONFIG, **TIED}, name="complete")
    merge(complete, tmp_path / "out")
    del tensors["model.norm.weight"]
    incomplete = huggingface(tensors, {**CONFIG, **TIED}, name="incomplete")
    with pytest.raises(UserError) as caught:
        merge(incomplete, tmp_path / "other")
    assert "model.norm.weight" in str(caught.value.found)
    assert caught.value.where == str(incomplete)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("prefix", "names"),
    [("model.", [*decoder(), "lm_head.weight"]), ("policy.", decoder()), ("net.", GPT2), ("model.", decoder())],
)
def test_prefix_of_a_wrapper_class_raises(tmp_path: Path, prefix: str, names: list[str]) -> None:
    source = tmp_path / "in"
    source.mkdir()
    state = {prefix + name: torch.zeros(8, 4) for name in names}
    torch.save({"state_dict": state, "epoch": 3}, source / "pytorch_model.bin")
    (source / "config.json").write_text('{"vocab_size": 8, "hidden_size": 4}')
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert caught.value.where == str(source)
    assert f"removeprefix({prefix!r})" in str(caught.value.fix)
    assert not (tmp_path / "out").exists()
    torch.save({"state_dict": {name.removeprefix(prefix): state[name] for name in state}}, source / "pytorch_model.bin")
    merge(source, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == set(names)
