"""Frozen vision towers, and adapters of vision-language models."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore.config.schema import RunConfig
from rlcore.errors import UserError
from rlcore.models.shape import shape_of_folder
from rlcore.specs import ModelOnDevice
from rlcore_models.builtin.config import TinyQwen3VLConfig, TinyQwen25VLConfig
from rlcore_models.builtin.tiny_qwen_vl import build_qwen3, build_qwen25
from rlcore_models.lora_config import LoraTable
from rlcore_trainer.checkpoints.start import starting_policy
from rlcore_trainer.checks import model_check
from rlcore_trainer.checks.memory import memory
from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.vision import freeze_tower
from vision_models import FAMILIES, vision_folder, vision_language_model

CPU = torch.device("cpu")


def run(path: str, **tables: Any) -> Any:
    values: dict[str, Any] = {"model": {"path": path, **tables.get("model", {})}, "environment": {"id": ""}}
    options = {"lora": LoraTable(**tables.get("lora", {}))}
    return SimpleNamespace(
        config=RunConfig(**values, reward=[]),
        options=options.get,
        resolved=SimpleNamespace(options=options, origin=lambda path: "a test", environments=()),
        resume_from=None,
    )


def trained(policy: CausalLanguageModel) -> set[str]:
    return {name for name, each in policy.module.named_parameters() if each.requires_grad}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frozen_tower_and_its_merger_are_not_trained(family: str, tmp_path: Path) -> None:
    folder = vision_folder(tmp_path, family)
    policy = starting_policy(run(str(folder), model={"vision_tower": "frozen"}), folder, device=CPU)
    names = trained(policy)
    assert names
    assert not any("visual" in name for name in names)
    assert any("frozen" in line for line in policy.description())


def test_a_tower_is_trained_by_default(tmp_path: Path) -> None:
    folder = vision_folder(tmp_path, "qwen2_5_vl")
    policy = starting_policy(run(str(folder)), folder, device=CPU)
    assert trained(policy) == {name for name, _ in policy.module.named_parameters()}
    count = sum(each.numel() for each in policy.parameters())
    assert any(f"{count:,} trained parameters" in line for line in policy.description())


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "up_proj"]])
@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_leave_the_tower_alone(family: str, targets: Any, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = vision_folder(tmp_path / "base", family)
    policy = starting_policy(run(str(folder), lora={"rank": 2, "targets": targets}), folder, device=CPU)
    names = trained(policy)
    assert names
    assert all("language_model.layers" in name for name in names)
    policy.save(tmp_path / "adapter")
    again = run(str(folder), lora={"adapter": str(tmp_path / "adapter")})
    assert trained(starting_policy(again, folder, device=CPU)) == names
    assert (tmp_path / "adapter" / "preprocessor_config.json").is_file()


@pytest.mark.parametrize("family", FAMILIES)
def test_fully_trained_layers_are_those_of_the_text_model(family: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = vision_folder(tmp_path / "base", family)
    table = {"rank": 2, "targets": ["q_proj"], "modules_to_save": ["norm", "lm_head"]}
    policy = starting_policy(run(str(folder), lora=table), folder, device=CPU)
    whole = {name for name in trained(policy) if "lora_" not in name}
    assert any("language_model.norm." in name for name in whole)
    assert any("lm_head." in name for name in whole)
    assert not any("visual" in name for name in whole)
    policy.save(tmp_path / "adapter")
    again = run(str(folder), lora={**table, "adapter": str(tmp_path / "adapter")})
    assert trained(starting_policy(again, folder, device=CPU)) == trained(policy)
    other = run(str(folder), lora={**table, "modules_to_save": ["norm"], "adapter": str(tmp_path / "adapter")})
    with pytest.raises(UserError, match="modules_to_save"):
        starting_policy(other, folder, device=CPU)


def test_fully_trained_layers_of_the_tower_are_chosen_by_their_path(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = vision_folder(tmp_path, "qwen3_vl")
    table = {"rank": 2, "targets": ["q_proj"], "modules_to_save": ["visual.merger.norm"]}
    policy = starting_policy(run(str(folder), lora=table), folder, device=CPU)
    whole = {name.rpartition(".modules_to_save")[0] for name in trained(policy) if "lora_" not in name}
    assert whole == {"model.visual.merger.norm"}


def test_a_regular_expression_adapts_the_tower(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = vision_folder(tmp_path, "qwen2_5_vl")
    table = {"rank": 2, "targets": r".*visual\.blocks\.\d+\.attn\.qkv"}
    policy = starting_policy(run(str(folder), lora=table), folder, device=CPU)
    assert all("visual.blocks" in name for name in trained(policy))


def test_unsupported_vision_models_are_refused_before_weights_load(tmp_path: Path) -> None:
    folder = vision_folder(tmp_path, "qwen2_vl")
    assert list(model_check.check(run(str(folder)))) == []
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"qwen2_vl"', '"mllama"').replace("Qwen2VLFor", "MllamaFor"))
    with pytest.raises(UserError, match="MllamaForConditionalGeneration"):
        list(model_check.check(run(str(folder))))


def test_a_frozen_tower_of_a_text_model_is_noted(model_folder: Path) -> None:
    (found,) = model_check.check(run(str(model_folder), model={"vision_tower": "frozen"}))
    assert "no vision tower" in found.text


def test_a_copied_trunk_keeps_its_tower_frozen() -> None:
    model = vision_language_model("qwen2_5_vl")
    freeze_tower(model)
    trunk = CausalLanguageModel(model).trunk()
    assert not any(each.requires_grad for name, each in trunk.module.named_parameters() if "visual" in name)


@pytest.mark.parametrize("family", ["Qwen2_5_VL", "Qwen3VL"])
def test_saved_folders_load_with_the_processor_of_transformers(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    start, build = tmp_path / "start", build_qwen3 if family == "Qwen3VL" else build_qwen25
    build(start, ["a circle"], 0, TinyQwen3VLConfig() if family == "Qwen3VL" else TinyQwen25VLConfig())
    policy = CausalLanguageModel.load(start, dtype="auto", device=CPU)
    saved = tmp_path / "saved"
    saved.mkdir()
    policy.save(saved)
    processor = AutoProcessor.from_pretrained(saved)
    assert processor.image_processor.to_dict() == AutoProcessor.from_pretrained(start).image_processor.to_dict()
    assert processor.chat_template == AutoProcessor.from_pretrained(start).chat_template
    model, loading = AutoModelForImageTextToText.from_pretrained(saved, output_loading_info=True)
    assert not loading["missing_keys"]
    for name, weight in policy.module.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


def test_memory_estimates_include_the_tower(tmp_path: Path) -> None:
    folder = vision_folder(tmp_path, "qwen2_5_vl")
    shape = shape_of_folder(folder)
    model = vision_language_model("qwen2_5_vl")
    tower = sum(each.numel() for each in model.model.visual.parameters())
    assert shape.tower is not None
    assert shape.tower.parameters == tower
    assert shape.parameters == sum(each.numel() for each in model.parameters())
    placed = ModelOnDevice(shape=shape, element_bytes=4, gpu_bytes=None)
    phases = {}
    for kind in ("trained", "frozen"):
        one = run(str(folder), model={"vision_tower": kind})
        one.options = lambda table: SupervisedConfig(max_tokens_per_batch=4096)
        one.model_here, one.dataset = lambda: None, object()
        phases[kind] = memory(one, placed).phases["further micro-batches"]
    assert phases["trained"]["gradients"] - phases["frozen"]["gradients"] == 4 * tower
    assert phases["trained"]["vision tower"] > phases["frozen"]["vision tower"] > 0
