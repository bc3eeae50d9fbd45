"""Patches and visual features equal those of transformers."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from PIL import Image
from rlcore.errors import DataError
from rlcore.images import ImageProcessor
from rlcore_models.pixels import patches
from rlcore_models.vision_encoder import is_vision_language, text_model, visual_features
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2VLImageProcessor
from vision_models import FAMILIES, TEXT, picture, processor_of, vision_language_model

pytestmark = pytest.mark.numeric

SIZES = [(112, 112), (84, 140), (112, 112), (280, 196), (28, 28), (140, 84), (336, 56)]
"""Width and height of fitted images. A window of the models below has 56 x 56 pixels, two visual tokens square."""


def pictures_of(processor: ImageProcessor) -> list[bytes]:
    side = processor.token_side
    return [picture(wide // 28 * side, high // 28 * side, seed) for seed, (wide, high) in enumerate(SIZES)]


def by_transformers(processor: ImageProcessor, encoded: list[bytes]) -> Any:
    theirs = Qwen2VLImageProcessor(
        patch_size=processor.patch_size, min_pixels=processor.min_pixels, max_pixels=processor.max_pixels
    )
    return theirs([Image.open(io.BytesIO(data)) for data in encoded], return_tensors="pt")


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_patches_equal_those_of_transformers(family: str) -> None:
    processor = processor_of(family)
    encoded = pictures_of(processor)
    expected = by_transformers(processor, encoded)["pixel_values"]
    assert torch.equal(torch.cat([patches(data, processor) for data in encoded]), expected)


def test_an_image_that_is_not_fitted_has_no_patches() -> None:
    with pytest.raises(DataError, match="fitted size"):
        patches(picture(100, 56, 0), ImageProcessor())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_features_and_gradients_equal_those_of_transformers(family: str, checkpointing: bool) -> None:
    model = vision_language_model(family)
    processor = processor_of(family)
    encoded = pictures_of(processor)
    inputs = by_transformers(processor, encoded)
    theirs = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    expected = [torch.cat(theirs.pooler_output)]
    expected += [torch.cat(list(each)) for each in getattr(theirs, "deepstack_features", None) or ()]
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.train()
    ours = visual_features(model, encoded, processor)
    found = [ours.features_KD, *ours.deepstack]
    assert len(found) == len(expected) == (3 if family == "qwen3_vl" else 1)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
    directions = [torch.randn_like(each) for each in expected]
    tower = [each for each in model.model.visual.parameters() if each.requires_grad]
    mine_by_weight, other_by_weight = (
        torch.autograd.grad(sum((x * y).sum() for x, y in zip(values, directions, strict=True)), tower)  # type: ignore[arg-type]
        for values in (found, expected)
    )
    for mine, other in zip(mine_by_weight, other_by_weight, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=float(other.abs().max()) * 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_features_of_an_image_do_not_depend_on_other_images(family: str) -> None:
    model, processor = vision_language_model(family), processor_of(family)
    encoded = pictures_of(processor)
    together = visual_features(model, encoded, processor).features_KD
    alone = torch.cat([visual_features(model, [data], processor).features_KD for data in encoded])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_the_text_model_has_embeddings_layers_and_norm() -> None:
    text_only = Qwen2ForCausalLM(Qwen2Config(**{name: value for name, value in TEXT.items() if name != "head_dim"}))
    models: list[nn.Module] = [text_only, vision_language_model("qwen2_5_vl"), vision_language_model("qwen3_vl")]
    for model in models:
        found: Any = text_model(model)
        assert found.embed_tokens is model.get_input_embeddings()  # type: ignore[operator]
        assert len(found.layers) == 2
        assert found.norm is not None
    assert [is_vision_language(model) for model in models] == [False, True, True]
