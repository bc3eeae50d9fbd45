"""Adapters in peft's format, compared with the formulas of the papers in torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore.models.adapter import FINGERPRINT, QUANTIZATION
from rlcore_merge import merge
from rlcore_merge.lora import fingerprint
from rlcore_merge.sources.huggingface import read_safetensors
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


def test_rslora_divides_alpha_by_the_root_of_the_rank(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    found = merged(huggingface(BASE), peft_adapter(LORA, {"use_rslora": True}), tmp_path / "out")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], BASE[f"{Q}.weight"] + 6 / sqrt(2) * delta, rtol=1e-6, atol=1e-6)


def test_patterns_set_rank_and_alpha_per_module(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    settings = {"r": 7, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.0.self_attn.q_proj": 10}}
    found = merged(huggingface(BASE), peft_adapter(LORA, settings), tmp_path / "out")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], BASE[f"{Q}.weight"] + 5.0 * delta, rtol=1e-6, atol=1e-6)


def test_dora_scales_each_output_to_its_magnitude(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    magnitude = random(8).abs()
    tensors = {**LORA, f"{Q}.lora_magnitude_vector": magnitude}
    found = merged(huggingface(BASE), peft_adapter(tensors, {"use_dora": True}), tmp_path / "out")
    direction = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    expected = torch.stack([m * row / row.norm() for m, row in zip(magnitude, direction, strict=True)])
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-5, atol=1e-6)
    assert torch.allclose(found[f"{Q}.weight"].norm(dim=1), magnitude, rtol=1e-5, atol=1e-6)


def test_input_major_weights_and_embeddings_are_transposed(
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


def test_saved_modules_and_biases_replace_those_of_the_base(
    huggingface: Write, peft_adapter: Write, tmp_path: Path
) -> None:
    tensors = {**LORA, "lm_head.weight": random(11, 6, seed=9), f"{Q}.bias": random(8, seed=9)}
    found = merged(huggingface(BASE), peft_adapter(tensors, {}), tmp_path / "out")
    assert torch.equal(found["lm_head.weight"], tensors["lm_head.weight"])
    assert torch.equal(found[f"{Q}.bias"], tensors[f"{Q}.bias"])


def test_product_is_added_in_float32_before_rounding(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    half = {name: tensor.bfloat16() for name, tensor in BASE.items()}
    base, adapter = huggingface(half), peft_adapter(LORA, {})
    kept = merged(base, adapter, tmp_path / "kept")
    wide = merged(base, adapter, tmp_path / "wide", dtype="fp32")
    delta = LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    exact = half[f"{Q}.weight"].float() + 3.0 * delta
    assert torch.allclose(wide[f"{Q}.weight"], exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(kept[f"{Q}.weight"], wide[f"{Q}.weight"].bfloat16())


def test_tied_embeddings_are_untied_if_one_changes(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
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


def test_old_names_of_vision_language_models_are_found(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    renamed = {name.replace("model.", "model.language_model."): tensor for name, tensor in LORA.items()}
    found = merged(huggingface(BASE), peft_adapter(renamed, {}), tmp_path / "out")
    assert not torch.equal(found[f"{Q}.weight"], BASE[f"{Q}.weight"])


@pytest.mark.parametrize(
    ("tensors", "settings", "found"),
    [
        (
            {"model.layers.5.q.lora_A.weight": random(2, 6), "model.layers.5.q.lora_B.weight": random(8, 2)},
            {},
            "model.layers.5.q.weight",
        ),
        ({f"{Q}.lora_A.weight": random(2, 6), f"{Q}.lora_B.weight": torch.zeros(8, 2)}, {}, f"such as {Q}"),
        ({f"{Q}.lora_A.weight": random(2, 5), f"{Q}.lora_B.weight": random(8, 2)}, {}, "A [2, 5]"),
        ({f"{Q}.lora_A.weight": random(2, 6)}, {}, f"{Q} has no lora_B.weight"),
        (LORA, {"r": 4}, "r = 4"),
        (LORA, {"peft_type": "LOHA"}, "peft_type LOHA"),
        (LORA, {"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        (LORA, {"kasa_config": {"beta": 0.1}}, "kasa_config"),
        (LORA, {"use_bdlora": {"nblocks": 2}, "arrow_config": {}}, "use_bdlora"),
        (LORA, {"use_future_variant": True}, "use_future_variant"),
        (LORA, {"init_lora_weights": "pissa_niter_16"}, "'pissa_niter_16'"),
        (LORA, {"init_lora_weights": "OLoRA"}, "'OLoRA'"),
        (LORA, {"peft_type": ["LORA"]}, "peft_type is ['LORA']"),
        (LORA, {"r": "two"}, "r is 'two'"),
        (LORA, {"lora_alpha": float("nan")}, "lora_alpha is nan"),
        (LORA, {"lora_alpha": 0}, f"such as {Q}"),
        (LORA, {"alpha_pattern": {"q_proj": "z"}}, "alpha_pattern of q_proj is 'z'"),
        (LORA, {"rank_pattern": [2]}, "rank_pattern is [2]"),
        (LORA, {"rank_pattern": {"(": 2}}, "rank_pattern contains '('"),
        ({**LORA, f"{Q}.lora_B.weight": torch.full((8, 2), float("inf"))}, {}, f"such as {Q}"),
        ({**LORA, "lm_head.weight": random(3, 3)}, {}, "[3, 3], expected [11, 6]"),
        ({f"{Q}.lora_A.weight": random(0, 6), f"{Q}.lora_B.weight": random(8, 0)}, {"r": 0}, "A [0, 6]"),
        ({f"{Q}.lora_A.weight": torch.tensor(1.0), f"{Q}.lora_B.weight": random(8, 2)}, {}, "A []"),
        ({**LORA, f"{Q}.lora_B.weight": random(8, 2).int()}, {}, "lora_B.weight is I32"),
        ({**LORA, f"{Q}.lora_magnitude_vector": random(3)}, {"use_dora": True}, "3 magnitudes"),
        ({**LORA, f"{Q}.lora_B.bias": random(3)}, {}, "[3], expected [8]"),
    ],
)
def test_invalid_adapter_raises(
    huggingface: Write,
    peft_adapter: Write,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    settings: dict[str, Any],
    found: str,
) -> None:
    adapter = peft_adapter(tensors, settings)
    with pytest.raises(UserError) as caught:
        merged(huggingface(BASE), adapter, tmp_path / "out")
    assert found in str(caught.value.found)
    assert str(adapter) in str(caught.value.where)
    assert not (tmp_path / "out").exists()


def test_message_of_an_adapter_that_does_not_fit(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    tensors = {f"{Q}.lora_A.weight": random(2, 5), f"{Q}.lora_B.weight": random(8, 2)}
    adapter = peft_adapter(tensors, {})
    with pytest.raises(UserError) as caught:
        merged(huggingface(BASE), adapter, tmp_path / "out")
    assert str(caught.value).splitlines() == [
        f"the adapter does not fit {Q}",
        "  found  B [8, 2] · A [2, 5], but the weight of the base is [8, 6]",
        f"  from   {adapter}",
        "  fix    pass the base that the adapter was trained on: --base FOLDER",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": "eva", "eva_config": {"rho": 2.0}},
        {"init_lora_weights": False, "kasa_config": None, "use_qalora": False, "loftq_config": {}},
    ],
)
def test_initialisation_that_keeps_the_base_is_accepted(
    huggingface: Write, peft_adapter: Write, tmp_path: Path, settings: dict[str, Any]
) -> None:
    found = merged(huggingface(BASE), peft_adapter(LORA, settings), tmp_path / "out")
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)


def test_modified_base_inside_the_checkpoint_is_accepted(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    torch.save({**BASE, **LORA}, source / "pytorch_model.bin")
    settings = {"r": 2, "lora_alpha": 6, "init_lora_weights": "pissa"}
    (source / "lora_train_meta.json").write_text(json.dumps(settings))
    merge(source, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)


def test_missing_base_raises(peft_adapter: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        merge(peft_adapter(LORA, {"base_model_name_or_path": "acme/missing"}), tmp_path / "out")
    assert "acme/missing" in str(caught.value.found)
    assert "--base" in str(caught.value.fix)


def test_wrong_base_raises(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    right = huggingface(BASE)
    other = huggingface({**BASE, f"{Q}.weight": BASE[f"{Q}.weight"] + 1}, name="other")
    name = fingerprint(read_safetensors(right / "model.safetensors")[0])
    adapter = peft_adapter(LORA, {"rlcore_base_fingerprint": name})
    with pytest.raises(UserError) as caught:
        merge(adapter, tmp_path / "out", base=other)
    assert name in str(caught.value.found)
    assert str(other) in str(caught.value.where)
    merge(adapter, tmp_path / "out", base=right)


def test_verl_adapter_checkpoint_is_merged_with_its_alpha(huggingface: Write, tmp_path: Path) -> None:
    source = tmp_path / "actor"
    source.mkdir()
    whole = {f"base_model.model.{name}": tensor for name, tensor in BASE.items() if not name.startswith(Q)}
    whole |= {f"base_model.model.{Q}.base_layer.{end}": BASE[f"{Q}.{end}"] for end in ("weight", "bias")}
    parts = {f"base_model.model.{name.replace('.weight', '.default.weight')}": tensor for name, tensor in LORA.items()}
    path = source / "model_world_size_1_rank_0.pt"
    torch.save({**whole, **parts}, path)
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert "lora_alpha" in str(caught.value.found)
    assert "--lora-alpha" in str(caught.value.fix)
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


def test_exported_names_select_only_the_adapted_modules(tmp_path: Path) -> None:
    """Other layers have a q_proj without an adapter; a module in a sequence has a number as its name."""
    source = tmp_path / "in"
    source.mkdir()
    adapted = {f"{name}.lora_{part}.weight": random(2, 2) for name in (Q, "merger.mlp.0") for part in "AB"}
    adapted |= {f"{Q}.bias": random(2), "score.weight": random(2, 2)}
    others = {"model.layers.1.self_attn.q_proj.weight": random(2, 2), "model.layers.0.mlp.c_fc.weight": random(2, 2)}
    up = {f"model.layers.0.mlp.c_fc.lora_{part}.weight": random(2, 2) for part in "AB"}
    torch.save({**adapted, **up, **others}, source / "pytorch_model.bin")
    (source / "lora_train_meta.json").write_text('{"r": 2, "lora_alpha": 6}')
    merge(source, tmp_path / "out", adapter=True)
    settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert settings["target_modules"] == ["c_fc", "merger.mlp.0", Q]


def test_exported_adapter_merges_like_the_checkpoint(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    base, adapter = huggingface(BASE), peft_adapter(LORA, {"use_rslora": True})
    merge(adapter, tmp_path / "exported", adapter=True)
    one = merged(base, adapter, tmp_path / "one")
    two = merged(base, tmp_path / "exported", tmp_path / "two")
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert one.keys() == two.keys()


def test_exported_adapter_keeps_the_base_fingerprint(huggingface: Write, peft_adapter: Write, tmp_path: Path) -> None:
    base = huggingface(BASE)
    other = huggingface({**BASE, f"{Q}.weight": BASE[f"{Q}.weight"] + 1}, name="other")
    adapter = peft_adapter(LORA, {})
    about_base = {FINGERPRINT: fingerprint(read_safetensors(base / "model.safetensors")[0]), QUANTIZATION: "nf4"}
    tensors = load_file(adapter / "adapter_model.safetensors")
    save_file(tensors, adapter / "adapter_model.safetensors", metadata={**about_base, "author": "example"})
    merge(adapter, tmp_path / "exported", adapter=True, dtype="bf16")
    assert read_safetensors(tmp_path / "exported" / "adapter_model.safetensors")[1] == {"format": "pt", **about_base}
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "exported", tmp_path / "out", base=other)
    assert about_base[FINGERPRINT] in str(caught.value.found)
    merged = merge(tmp_path / "exported", tmp_path / "out", base=base)
    assert [note for note in merged.notes if "trained on the base in nf4" in note]
    assert [note for note in json.loads((tmp_path / "out" / "rlcore-merge.json").read_text())["notes"] if "nf4" in note]


def test_export_of_a_full_model_raises(huggingface: Write, tmp_path: Path) -> None:
    base = huggingface(BASE)
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out", adapter=True)
    assert caught.value.where == str(base)
    assert "--adapter" in str(caught.value.fix)


def test_adapter_inside_a_bin_file_is_merged(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    torch.save({**BASE, **LORA}, source / "pytorch_model.bin")
    merge(source, tmp_path / "out", lora_alpha=6)
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = BASE[f"{Q}.weight"] + 3.0 * LORA[f"{Q}.lora_B.weight"] @ LORA[f"{Q}.lora_A.weight"]
    assert found.keys() == BASE.keys()
    assert torch.allclose(found[f"{Q}.weight"], expected, rtol=1e-6, atol=1e-6)
