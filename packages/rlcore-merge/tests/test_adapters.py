"""Adapters in peft's format, against the formulas of the papers, computed with torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.adapter_folder import FINGERPRINT, QUANTIZATION
from rlcore.errors import UserError
from rlcore_merge import merge
from rlcore_merge.fingerprint import fingerprint
from rlcore_merge.safetensors_files import read
from safetensors.torch import load_file, save_file

Write = Callable[..., Path]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


BASE = {
    "model.embed_tokens.weight": random(11, 6),
    "model.layers.0.self_attn.q_proj.weight": random(8, 6),
    "model.layers.0.self_attn.q_proj.bias": random(8),
    "model.layers.0.mlp.c_fc.weight": random(6, 8, seed=1),
    "lm_head.weight": random(11, 6, seed=2),
}
Q = "model.layers.0.self_attn.q_proj"
LORA = {f"{Q}.lora_A.weight": random(2, 6), f"{Q}.lora_B.weight": random(8, 2)}


def merged(base: Path, adapter: Path, out: Path, **options: Any) -> dict[str, torch.Tensor]:
    merge(adapter, out, base=base, **options)
    return load_file(out / "model.safetensors")


def test_lora_adds_the_scaled_product(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    found = merged(huggingface(BASE), peft_adapter(LORA, {}), tmp_path / "out")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], BASE[f"{Q}.weight"] + 3.0 * delta, rtol=1e-6, atol=1e-6)
    for name in BASE.keys() - {f"{Q}.weight"}:
        assert torch.equal(found[name], BASE[name])


def test_rank_stabilised_lora_divides_by_the_root(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    found = merged(huggingface(BASE), peft_adapter(LORA, {"use_rslora": True}), tmp_path / "out")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], BASE[f"{Q}.weight"] + 6 / sqrt(2) * delta, rtol=1e-6, atol=1e-6)


def test_patterns_set_rank_and_alpha_of_single_modules(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    settings = {"r": 7, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.0.self_attn.q_proj": 10}}
    found = merged(huggingface(BASE), peft_adapter(LORA, settings), tmp_path / "out")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], BASE[f"{Q}.weight"] + 5.0 * delta, rtol=1e-6, atol=1e-6)


def test_dora_scales_every_output_to_its_magnitude(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    magnitude = random(8).abs()
    tensors = {**LORA, f"{Q}.lora_magnitude_vector": magnitude}
    found = merged(huggingface(BASE), peft_adapter(tensors, {"use_dora": True}), tmp_path / "out")
    direction = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    expected = torch.stack([m * row / row.norm() for m, row in zip(magnitude, direction, strict=True)])
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-5, atol=1e-6)
    assert torch.allclose(found[f"{Q}.weight"].norm(dim=1), magnitude, rtol=1e-5, atol=1e-6)


def test_weights_stored_by_input_and_embeddings_are_transposed(
    huggingface: Write, peft_adapter: Write, tmp_path: Path
) -> None:
    module = "model.layers.0.mlp.c_fc"
    tensors = {
        f"{module}.lora_A.weight": random(2, 6),
        f"{module}.lora_B.weight": random(8, 2),
        "model.embed_tokens.lora_embedding_A": random(2, 11),
        "model.embed_tokens.lora_embedding_B": random(6, 2),
    }
    found = merged(huggingface(BASE), peft_adapter(tensors, {"fan_in_fan_out": True}), tmp_path / "out")
    for name, up, down in (
        (f"{module}.weight", tensors[f"{module}.lora_B.weight"], tensors[f"{module}.lora_A.weight"]),
        (
            "model.embed_tokens.weight",
            tensors["model.embed_tokens.lora_embedding_B"],
            tensors["model.embed_tokens.lora_embedding_A"],
        ),
    ):
        assert torch.allclose(found[name], BASE[name] + 3.0 * (up @ down).T, rtol=1e-6, atol=1e-6)


def test_saved_modules_and_biases_replace_the_bases(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    tensors = {**LORA, "lm_head.weight": random(11, 6, seed=9), f"{Q}.bias": random(8, seed=9)}
    found = merged(huggingface(BASE), peft_adapter(tensors, {}), tmp_path / "out")
    assert torch.equal(found["lm_head.weight"], tensors["lm_head.weight"])
    assert torch.equal(found[f"{Q}.bias"], tensors[f"{Q}.bias"])


def test_the_product_is_added_in_float32_before_rounding(
    huggingface: Write, peft_adapter: Write, tmp_path: Path
) -> None:
    half = {name: tensor.bfloat16() for name, tensor in BASE.items()}
    base, adapter = huggingface(half), peft_adapter(LORA, {})
    kept = merged(base, adapter, tmp_path / "kept")
    wide = merged(base, adapter, tmp_path / "wide", dtype="fp32")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    exact = half[f"{Q}.weight"].float() + 3.0 * delta
    assert torch.allclose(wide[f"{Q}.weight"], exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(kept[f"{Q}.weight"], wide[f"{Q}.weight"].bfloat16())


def test_tied_embeddings_part_when_the_adapter_changes_one(
    huggingface: Write, peft_adapter: Write, tmp_path: Path
) -> None:
    tied = {name: tensor for name, tensor in BASE.items() if name != "lm_head.weight"}
    tensors = {
        "model.embed_tokens.lora_embedding_A": random(2, 11),
        "model.embed_tokens.lora_embedding_B": random(6, 2),
    }
    base = huggingface(tied, {"tie_word_embeddings": True})
    found = merged(base, peft_adapter(tensors, {}), tmp_path / "out")
    assert torch.equal(found["lm_head.weight"], BASE["model.embed_tokens.weight"])
    assert not torch.equal(found["model.embed_tokens.weight"], BASE["model.embed_tokens.weight"])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False


def test_names_of_older_vision_language_models_are_found(
    huggingface: Write, peft_adapter: Write, tmp_path: Path
) -> None:
    renamed = {name.replace("model.", "model.language_model."): tensor for name, tensor in LORA.items()}
    found = merged(huggingface(BASE), peft_adapter(renamed, {}), tmp_path / "out")
    assert not torch.equal(found[f"{Q}.weight"], BASE[f"{Q}.weight"])


@pytest.mark.parametrize(
    ("tensors", "settings", "sentence"),
    [
        (
            {"model.layers.5.q.lora_A.weight": random(2, 6), "model.layers.5.q.lora_B.weight": random(8, 2)},
            {},
            "does not have",
        ),
        ({f"{Q}.lora_A.weight": random(2, 6), f"{Q}.lora_B.weight": torch.zeros(8, 2)}, {}, "changes nothing"),
        ({f"{Q}.lora_A.weight": random(2, 5), f"{Q}.lora_B.weight": random(8, 2)}, {}, "does not fit"),
        ({f"{Q}.lora_A.weight": random(2, 6)}, {}, "not whole"),
        (LORA, {"r": 4}, "contradict"),
        (LORA, {"peft_type": "LOHA"}, "cannot be merged"),
        (LORA, {"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        (LORA, {"kasa_config": {"beta": 0.1}}, "kasa_config"),
        (LORA, {"use_bdlora": {"nblocks": 2}, "arrow_config": {}}, "found  use_bdlora\n"),
        (LORA, {"use_what_comes_next": True}, "use_what_comes_next"),
        (LORA, {"init_lora_weights": "pissa_niter_16"}, "a base that was changed"),
        (LORA, {"init_lora_weights": "OLoRA"}, "a base that was changed"),
        (LORA, {"peft_type": ["LORA"]}, "cannot be used"),
        (LORA, {"r": "two"}, "r is 'two'"),
        (LORA, {"lora_alpha": float("nan")}, "lora_alpha is nan"),
        (LORA, {"lora_alpha": 0}, "changes nothing"),
        (LORA, {"alpha_pattern": {"q_proj": "z"}}, "alpha_pattern of q_proj is 'z'"),
        (LORA, {"rank_pattern": [2]}, "not a table"),
        (LORA, {"rank_pattern": {"(": 2}}, "no regular expression"),
        ({**LORA, f"{Q}.lora_B.weight": torch.full((8, 2), float("inf"))}, {}, "holds infinities"),
        ({**LORA, "lm_head.weight": random(3, 3)}, {}, "another shape"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    huggingface: Write,
    peft_adapter: Write,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    settings: dict[str, Any],
    sentence: str,
) -> None:
    with pytest.raises(UserError, match=sentence):
        merged(huggingface(BASE), peft_adapter(tensors, settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": "eva", "eva_config": {"rho": 2.0}},
        {"init_lora_weights": False, "kasa_config": None, "use_qalora": False, "loftq_config": {}},
    ],
)
def test_how_the_matrices_began_does_not_matter_where_the_base_stayed(
    huggingface: Write, peft_adapter: Write, tmp_path: Path, settings: dict[str, Any]
) -> None:
    found = merged(huggingface(BASE), peft_adapter(LORA, settings), tmp_path / "out")
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)


def test_a_changed_base_that_the_checkpoint_itself_holds_is_the_right_one(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    torch.save({**BASE, **LORA}, source / "pytorch_model.bin")
    settings = {"r": 2, "lora_alpha": 6, "init_lora_weights": "pissa"}
    (source / "lora_train_meta.json").write_text(json.dumps(settings))
    merge(source, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)


def test_a_base_that_is_not_on_this_machine_is_asked_for(peft_adapter: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        merge(peft_adapter(LORA, {"base_model_name_or_path": "nobody/nothing"}), tmp_path / "out")
    assert "--base" in str(caught.value)


def test_another_base_than_the_adapters_is_refused(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    right = huggingface(BASE)
    other = huggingface({**BASE, f"{Q}.weight": BASE[f"{Q}.weight"] + 1}, name="other")
    name = fingerprint(read(right / "model.safetensors")[0])
    adapter = peft_adapter(LORA, {"rlcore_base_fingerprint": name})
    with pytest.raises(UserError, match="another base"):
        merge(adapter, tmp_path / "out", base=other)
    merge(adapter, tmp_path / "out", base=right)


def test_verls_adapter_checkpoint_is_merged_with_its_true_alpha(huggingface: Write, tmp_path: Path) -> None:
    source = tmp_path / "actor"
    source.mkdir()
    whole = {f"base_model.model.{name}": tensor for name, tensor in BASE.items() if not name.startswith(Q)}
    whole |= {f"base_model.model.{Q}.base_layer.{end}": BASE[f"{Q}.{end}"] for end in ("weight", "bias")}
    parts = {f"base_model.model.{name.replace('.weight', '.default.weight')}": tensor for name, tensor in LORA.items()}
    path = source / "model_world_size_1_rank_0.pt"
    torch.save({**whole, **parts}, path)
    with pytest.raises(UserError, match="scale of the adapter"):
        merge(source, tmp_path / "out")
    (source / "lora_train_meta.json").write_text('{"r": 2, "lora_alpha": 6, "task_type": "CAUSAL_LM"}')
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    merge(source, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == BASE.keys()
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)
    torch.save(parts, path)  # save_lora_only
    merge(source, tmp_path / "alone", base=huggingface(BASE))
    assert torch.equal(load_file(tmp_path / "alone" / "model.safetensors")[f"{Q}.weight"], found[f"{Q}.weight"])
    merge(source, tmp_path / "adapter", adapter=True)
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (settings["lora_alpha"], settings["r"], settings["target_modules"]) == (6, 2, ["q_proj"])
    exported = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert exported.keys() == {f"base_model.model.{name}" for name in LORA}


def test_merging_the_exported_adapter_is_merging_the_checkpoint(
    huggingface: Write, peft_adapter: Write, tmp_path: Path
) -> None:
    base, adapter = huggingface(BASE), peft_adapter(LORA, {"use_rslora": True})
    merge(adapter, tmp_path / "exported", adapter=True)
    one = merged(base, adapter, tmp_path / "one")
    two = merged(base, tmp_path / "exported", tmp_path / "two")
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert one.keys() == two.keys()


def test_the_exported_adapter_still_says_its_base(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    base = huggingface(BASE)
    other = huggingface({**BASE, f"{Q}.weight": BASE[f"{Q}.weight"] + 1}, name="other")
    adapter = peft_adapter(LORA, {})
    says = {FINGERPRINT: fingerprint(read(base / "model.safetensors")[0]), QUANTIZATION: "nf4"}
    tensors = load_file(adapter / "adapter_model.safetensors")
    save_file(tensors, adapter / "adapter_model.safetensors", metadata={**says, "of": "somebody else"})
    merge(adapter, tmp_path / "exported", adapter=True, dtype="bf16")
    assert read(tmp_path / "exported" / "adapter_model.safetensors")[1] == {"format": "pt", **says}
    with pytest.raises(UserError, match="another base"):
        merge(tmp_path / "exported", tmp_path / "out", base=other)
    merge(tmp_path / "exported", tmp_path / "out", base=base)


def test_a_model_is_no_adapter(huggingface: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no adapter"):
        merge(huggingface(BASE), tmp_path / "out", adapter=True)


def test_an_adapter_inside_a_folder_of_torch_save_is_taken_out(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    torch.save({**BASE, **LORA}, source / "pytorch_model.bin")
    merge(source, tmp_path / "out", lora_alpha=6)
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert found.keys() == BASE.keys()
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)
