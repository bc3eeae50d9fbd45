"""Visual features of 32 pictures of 112 x 112 pixels, forward and backward: transformers / rlcore.

The vision tower is that of a random Qwen2.5-VL, with width 48, 2 blocks with full attention and an MLP of width 96.
Both sides start from encoded pictures. Features and gradients are compared before the measurement.
"""

from __future__ import annotations

import io
import time
from typing import Any

import torch
from comparison import Comparison
from PIL import Image
from rlcore_models.vision_encoder import visual_features
from shared_image import PROCESSOR, picture
from torch import Tensor
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessor

VERSIONS = ("rlcore-core", "torch", "transformers")
PICTURES = 32


def build() -> Any:
    """The model with a fixed seed."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]}
    text: dict[str, Any] = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 1, "intermediate_size": 64, "rope_parameters": rope}
    text |= {"bos_token_id": None, "eos_token_id": None}
    vision = {"depth": 2, "hidden_size": 48, "num_heads": 2, "intermediate_size": 96, "out_hidden_size": 64}
    vision["fullatt_block_indexes"] = [0, 1]  # type: ignore[assignment]
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """One comparison."""
    model, theirs = build(), Qwen2VLImageProcessor()
    encoded = [picture(4, 4, seed) for seed in range(2 if smoke else PICTURES)]

    def ours() -> Tensor:
        return visual_features(model, encoded, PROCESSOR).features_KD

    def peer() -> Tensor:
        inputs = theirs([Image.open(io.BytesIO(data)) for data in encoded], return_tensors="pt")
        return torch.cat(model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]).pooler_output)

    gradients = []
    for features in (ours(), peer()):
        model.zero_grad()
        features.square().sum().backward()
        gradients.append([each.grad for each in model.model.visual.parameters()])
    torch.testing.assert_close(ours(), peer(), rtol=1e-4, atol=1e-5)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)

    def seconds(side: Any) -> float:
        model.zero_grad()
        start = time.perf_counter()
        side().square().sum().backward()
        return time.perf_counter() - start

    return [
        Comparison(name="112-pixels", ours=lambda: seconds(ours), peer=lambda: seconds(peer), floor=1.3, warm_ups=3)
    ]
