"""Folders of vision-language models: recognised, and refused where images cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import UserError
from rlcore.models.vision_language import VisionLanguageModel, is_vision_language, require_images

CONFIG: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "image_token_id": 151655,
    "text_config": {"model_type": "qwen2_5_vl_text"},
    "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
}
PROCESSOR = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "max_pixels": 50176}


def folder(path: Path, config: dict[str, Any], processor: dict[str, Any] | None = PROCESSOR) -> Path:
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if processor is not None:
        (path / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "family"), [("qwen2_vl", "Qwen2-VL"), ("qwen2_5_vl", "Qwen2.5-VL"), ("qwen3_vl", "Qwen3-VL")]
)
def test_supported_families_are_recognised(tmp_path: Path, kind: str, family: str) -> None:
    found = VisionLanguageModel.of_folder(folder(tmp_path, {**CONFIG, "model_type": kind}))
    assert found == require_images(tmp_path)
    assert found is not None
    assert (found.family, found.placeholder, found.processor.max_pixels) == (family, 151655, 50176)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "qwen2"}, "a text model, model_type 'qwen2'"),
        ({**CONFIG, "model_type": "llava"}, "a vision-language model, model_type 'llava'"),
    ],
)
def test_images_are_refused_by_other_models(tmp_path: Path, config: dict[str, Any], kind: str) -> None:
    assert VisionLanguageModel.of_folder(folder(tmp_path, config)) is None
    with pytest.raises(UserError, match="images need a model of the families Qwen2-VL") as raised:
        require_images(tmp_path)
    assert raised.value.found == kind


@pytest.mark.parametrize(
    ("config", "processor", "message", "found"),
    [
        ({}, None, "the Qwen2.5-VL model has no image processor", "no preprocessor_config.json"),
        ({}, {"patch_size": 16}, "belongs to another model", "patch_size 16, and patch_size 14 in config.json"),
        ({}, {"merge_size": 4}, "belongs to another model", "merge_size 4, and spatial_merge_size 2 in config.json"),
        ({}, {"image_processor_type": "CLIPImageProcessor"}, "processor of Qwen2-VL", "CLIPImageProcessor"),
        ({"image_token_id": None}, {}, "image_token_id", "None"),
        ({"image_token_id": -1}, {}, "image_token_id", "-1"),
    ],
)
def test_folder_without_its_processor_is_refused(
    tmp_path: Path, config: dict[str, Any], processor: dict[str, Any] | None, message: str, found: str
) -> None:
    folder(tmp_path, {**CONFIG, **config}, None if processor is None else {**PROCESSOR, **processor})
    with pytest.raises(UserError) as raised:
        VisionLanguageModel.of_folder(tmp_path)
    assert message in raised.value.message
    assert raised.value.found == found
    assert raised.value.fix


def test_model_with_a_text_config_only_is_no_vision_language_model() -> None:
    assert not is_vision_language({"model_type": "gemma3", "text_config": {}})
    assert not is_vision_language({"vision_config": None})
