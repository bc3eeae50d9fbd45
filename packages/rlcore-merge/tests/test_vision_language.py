"""A small Qwen2.5-VL: published names, adapters of all linear layers, and comparison under either spelling."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from rlcore_merge import compare, merge
from rlcore_merge.cli import merge as command
from safetensors.torch import load_file

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers and peft

PROMPT = torch.tensor([[1, 2, 3, 4, 5, 6]])


def vision_language_model(*, tied: bool = False) -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    text = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 40,
        "tie_word_embeddings": tied,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
    }
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "out_hidden_size": 16,
        "intermediate_size": 24,
        "num_heads": 2,
        "patch_size": 4,
        "fullatt_block_indexes": [1],
        "window_size": 16,
    }
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=tied, image_token_id=30)
    return Qwen2_5_VLForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as transformers saves it."""
    folder = tmp_path_factory.mktemp("vl") / "reference"
    vision_language_model().save_pretrained(folder)
    return folder


@pytest.fixture
def trained(reference: Path, tmp_path: Path) -> Path:
    """A checkpoint of a trainer, with the names of the modules."""
    folder = tmp_path / "trained"
    (folder / "huggingface").mkdir(parents=True)
    (folder / "huggingface" / "config.json").write_bytes((reference / "config.json").read_bytes())
    torch.save(vision_language_model().state_dict(), folder / "model_world_size_1_rank_0.pt")
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=PROMPT).logits
    return found


def test_merged_model_has_the_published_names(reference: Path, trained: Path, tmp_path: Path) -> None:
    from transformers import Qwen2_5_VLForConditionalGeneration

    expected = load_file(reference / "model.safetensors")
    assert {name.split(".")[0] for name in expected} == {"model", "visual", "lm_head"}
    assert "model.layers.0.self_attn.q_proj.weight" in expected
    merge(trained, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    model, report = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert torch.equal(logits(model), logits(vision_language_model()))


def test_comparison_accepts_either_spelling(reference: Path, trained: Path, tmp_path: Path) -> None:
    assert compare(trained, reference).equal
    assert compare(reference, trained).equal
    own = tmp_path / "own"
    own.mkdir()
    torch.save(vision_language_model().state_dict(), own / "pytorch_model.bin")
    assert compare(own, reference).equal  # only one side has a config.json
    assert compare(reference, own).equal


def test_check_and_test_compare_in_one_dtype(reference: Path, trained: Path, tmp_path: Path) -> None:
    half, out = tmp_path / "half", tmp_path / "out"
    merge(reference, half, dtype="bf16")
    for arguments in (
        [str(trained), "--check", str(half)],
        ["test", "--backend", "fsdp", "--local_dir", str(trained), "--test_hf_dir", str(half)],
        [str(trained), "--out", str(out), "--check", str(half)],
    ):
        run = CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
        assert run.return_value == 0, run.output
        assert "compared as BF16" in run.output
    assert "logits on a prompt: largest difference 0" in run.output
    changed = load_file(half / "model.safetensors")
    changed["lm_head.weight"][0, 0] += 1
    torch.save(changed, tmp_path / "pytorch_model.bin")
    run = CliRunner().invoke(command, [str(trained), "--check", str(tmp_path)], standalone_mode=False)
    assert run.return_value == 1
    assert "lm_head.weight  values" in run.output


@pytest.mark.parametrize("whole", [True, False], ids=["model-and-adapter", "adapter-only"])
def test_exported_adapter_of_all_linear_layers_is_loaded_by_peft(reference: Path, tmp_path: Path, whole: bool) -> None:
    from peft import LoraConfig, PeftModel, get_peft_model

    settings = LoraConfig(r=2, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    torch.manual_seed(1)
    model = get_peft_model(vision_language_model(), settings).eval()
    state = model.state_dict()
    source = tmp_path / "actor"
    (source / "huggingface").mkdir(parents=True)
    (source / "huggingface" / "config.json").write_bytes((reference / "config.json").read_bytes())
    kept = state if whole else {name: tensor for name, tensor in state.items() if "lora_" in name}
    torch.save(kept, source / "model_world_size_1_rank_0.pt")
    (source / "lora_train_meta.json").write_text('{"r": 2, "lora_alpha": 8, "task_type": "CAUSAL_LM"}')
    merge(source, tmp_path / "adapter", adapter=True)
    modules = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert {"q_proj", "qkv"} & set(modules) or not whole
    assert not any(name.isdecimal() for name in modules)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = PeftModel.from_pretrained(vision_language_model(), tmp_path / "adapter").eval()
    assert not [str(warning.message) for warning in caught if "missing" in str(warning.message)]
    assert torch.equal(logits(loaded), logits(model))
    adapted = {name for name in state if "lora_A" in name}
    assert {name for name in loaded.state_dict() if "lora_A" in name} == adapted
    merge(source, tmp_path / "merged", base=reference)
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    assert merged.keys() == load_file(reference / "model.safetensors").keys()
    by_peft = model.merge_and_unload().state_dict()
    name = "visual.blocks.0.attn.proj.weight"
    assert torch.allclose(merged[name], by_peft[f"model.{name}"], rtol=1e-5, atol=1e-6)


def small_llava() -> Any:
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {"model_type": "llama", **sizes, "num_key_value_heads": 2, "vocab_size": 40}
    vision = {"model_type": "clip_vision_model", **sizes, "image_size": 28, "patch_size": 14, "projection_dim": 16}
    return LlavaForConditionalGeneration(LlavaConfig(text_config=text, vision_config=vision))


def small_mixture() -> Any:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 40}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, num_experts=4, num_experts_per_tok=2))


@pytest.mark.parametrize("make", [small_llava, small_mixture])
def test_model_without_known_published_names_is_merged_with_a_note(make: Any, tmp_path: Path) -> None:
    model = make()
    model.config.save_pretrained(tmp_path / "trained")
    torch.save(model.state_dict(), tmp_path / "trained/pytorch_model.bin")
    done = CliRunner().invoke(command, [str(tmp_path / "trained"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "names of modules" in done.output
    loaded = type(model).from_pretrained(tmp_path / "out").state_dict()
    assert loaded.keys() == model.state_dict().keys()
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
