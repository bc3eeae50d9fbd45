from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from rlcore.contracts import WeightSource
from rlcore.errors import UserError
from rlcore.models.weights import check_types
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.model import load_policy
from rlcore_trainer.policy.policy import TokenPolicy
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GemmaConfig, GemmaForCausalLM

CPU = torch.device("cpu")


def test_loaded_policy_is_ready_to_train(model_folder: Path) -> None:
    model = load_policy(model_folder, dtype="auto", device=CPU)
    assert model.dtype == torch.float32
    assert all(parameter.requires_grad for parameter in model.parameters())
    policy: TokenPolicy = CausalLanguageModel(model, model_folder)
    assert isinstance(policy, TokenPolicy)
    weights: WeightSource = CausalLanguageModel(model, model_folder, 3)
    assert isinstance(weights, WeightSource)
    assert (weights.version, weights.module, weights.folder) == (3, model, model_folder)


def test_weights_dtype_can_be_selected(model_folder: Path) -> None:
    assert load_policy(model_folder, dtype="bfloat16", device=CPU).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_incomplete_folder_names_the_missing_files(model_folder: Path, name: str) -> None:
    (model_folder / name).unlink()
    with pytest.raises(UserError, match=name.replace("model.safetensors", "weights")) as caught:
        load_policy(model_folder, dtype="auto", device=CPU)
    assert str(model_folder) in str(caught.value)


def test_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_policy(tmp_path / "nothing", dtype="auto", device=CPU)


def test_tokenizer_with_more_tokens_than_the_model_is_rejected(model_folder: Path) -> None:
    words = {f"w{i}": i for i in range(33)}
    Tokenizer(WordLevel(words, unk_token="w0")).save(str(model_folder / "tokenizer.json"))
    with pytest.raises(UserError, match="33 tokens, 32 embeddings"):
        load_policy(model_folder, dtype="auto", device=CPU)


def test_architectures_with_a_plain_output_layer_are_accepted(model_folder: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = GemmaConfig(vocab_size=32, num_key_value_heads=1, head_dim=16, **sizes)
    GemmaForCausalLM(config).save_pretrained(model_folder)
    assert json.loads((model_folder / "config.json").read_text(encoding="utf-8"))["model_type"] == "gemma"
    load_policy(model_folder, dtype="auto", device=CPU)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_missing_gpu_is_rejected() -> None:
    with pytest.raises(UserError, match=r"model\.device=auto"):
        SingleProcess(SingleProcessConfig()).device("cuda:0")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_folder_is_rejected_with_one_sentence(model_folder: Path, name: str) -> None:
    (model_folder / name).write_bytes(b'{"a": ' * 20)
    with pytest.raises(UserError, match=r"cannot be (loaded|read)") as caught:
        load_policy(model_folder, dtype="auto", device=CPU)
    assert (caught.value.where or "").startswith(str(model_folder))


def test_missing_weights_are_rejected(model_folder: Path) -> None:
    file = model_folder / "model.safetensors"
    weights = load_file(file)
    dropped = next(name for name in weights if "layers.0.mlp" in name)
    save_file({name: weight for name, weight in weights.items() if name != dropped}, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="incomplete") as caught:
        load_policy(model_folder, dtype="auto", device=CPU)
    assert dropped in str(caught.value)


def test_more_layers_of_weights_than_the_configuration_are_rejected(model_folder: Path) -> None:
    config = json.loads((model_folder / "config.json").read_text(encoding="utf-8"))
    smaller = {**config, "num_hidden_layers": 1, "layer_types": config["layer_types"][:1], "max_window_layers": 1}
    (model_folder / "config.json").write_text(json.dumps(smaller), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_policy(model_folder, dtype="auto", device=CPU)
    assert "layers.1." in str(caught.value.found)
    assert caught.value.where == str(model_folder)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("part", ["mlp.up_proj.weight", "q_proj.bias", ""])
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_weights_of_integers_are_rejected(model_folder: Path, dtype: torch.dtype, part: str, kind: str) -> None:
    file = model_folder / "model.safetensors"
    weights = {name: w.mul(100).to(dtype) if name.endswith(part) else w for name, w in load_file(file).items()}
    if kind == "safetensors":
        save_file(weights, file, metadata={"format": "pt"})
    else:
        file.unlink()
        file = model_folder / "pytorch_model.bin"
        torch.save(weights, file)
    with pytest.raises(UserError) as caught:
        load_policy(model_folder, dtype="auto", device=CPU)
    assert part in str(caught.value.found)
    assert caught.value.where == str(file)


@pytest.mark.parametrize("extra", ["model.rotary_emb.position_ids", "model.layers.0.attn.mask"])
def test_buffer_of_integers_is_not_a_weight(model_folder: Path, extra: str) -> None:
    file = model_folder / "model.safetensors"
    save_file({**load_file(file), extra: torch.arange(4)}, file, metadata={"format": "pt"})
    check_types(model_folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"quantization_config": {"quant_method": "gguf"}}, "quantization that the weights do not have"),
        ("config.json", {"eos_token_id": 31}, "eos_token_id must be an id"),
        ("generation_config.json", {"eos_token_id": [0, 31]}, "eos_token_id must be an id"),
    ],
)
def test_contradicting_configuration_is_named_before_weights_are_loaded(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: dict[str, object], message: str
) -> None:
    Tokenizer(WordLevel({f"w{i}": i for i in range(30)}, unk_token="w0")).save(str(model_folder / "tokenizer.json"))
    load_policy(model_folder, dtype="auto", device=CPU)
    path = model_folder / name
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**before, **change}), encoding="utf-8")
    monkeypatch.setattr("rlcore_models.loading.AutoModelForCausalLM", None)
    with pytest.raises(UserError, match=message) as caught:
        load_policy(model_folder, dtype="auto", device=CPU)
    assert caught.value.where == str(path)
