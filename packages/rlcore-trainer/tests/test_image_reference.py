"""Sizes, token counts and rotary positions of images equal those of transformers."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from rlcore.images import ImageProcessor
from rlcore.types import MediaSpan
from rlcore_models.positions import rotary_positions
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

PAD = 7


@pytest.mark.parametrize("patch", [14, 16])
def test_fitted_sizes_equal_those_of_transformers(patch: int) -> None:
    numbers = random.Random(patch)
    for _ in range(1000):
        width, height = (round(numbers.uniform(1, 60) ** 2) for _ in range(2))
        if max(width, height) > 200 * min(width, height):
            continue
        least = numbers.randrange(1, 300_000)
        most = numbers.randrange(max(least, 5000), 5_000_000)
        processor = ImageProcessor(patch_size=patch, min_pixels=least, max_pixels=most)
        high, wide = smart_resize(height, width, factor=2 * patch, min_pixels=least, max_pixels=most)
        assert processor.fitted_size(width, height) == (wide, high)


def test_rotary_positions_equal_those_of_transformers() -> None:
    text = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    vision: dict[str, Any] = {"depth": 1, "hidden_size": 8, "num_heads": 1, "out_hidden_size": 32}
    config = Qwen2_5_VLConfig(text_config={**text, "vocab_size": 64}, vision_config=vision, image_token_id=PAD)
    model = Qwen2_5_VLForConditionalGeneration(config)
    ids, kinds, media, grids = _separated([(3, (2, 5)), (1, (4, 4)), (2, (1, 1)), (4, (7, 2))])
    expected, _ = model.model.get_rope_index(
        torch.tensor([ids]), mm_token_type_ids=torch.tensor([kinds]), image_grid_thw=torch.tensor(grids)
    )
    found = torch.tensor([list(axis) for axis in rotary_positions(len(ids), media)])
    assert torch.equal(found, expected[:, 0])


def _separated(
    runs: list[tuple[int, tuple[int, int]]],
) -> tuple[list[int], list[int], list[MediaSpan], list[list[int]]]:
    ids: list[int] = []
    kinds: list[int] = []
    media: list[MediaSpan] = []
    grids: list[list[int]] = []
    for gap, (rows, columns) in runs:
        ids += [1] * gap
        media.append(MediaSpan(sha256="", offset=len(ids), length=rows * columns, rows=rows, columns=columns))
        ids += [PAD] * (rows * columns)
        kinds += [0] * gap + [1] * (rows * columns)
        grids.append([1, 2 * rows, 2 * columns])
    return [*ids, 1, 1], [*kinds, 0, 0], media, grids
