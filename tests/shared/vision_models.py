"""Tiny random vision-language models of all supported families, and pictures."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rlcore.images import ImageProcessor
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
IMAGE = 60
"""The token that marks an image."""

TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    **{"bos_token_id": None, "eos_token_id": None},  # those of the class are of the published tokenizer
}


def picture(width: int, height: int, seed: int) -> bytes:
    pixels = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    written = io.BytesIO()
    Image.frombytes("RGB", (width, height), pixels.numpy().tobytes()).save(written, format="PNG", compress_level=1)
    return written.getvalue()


def vision_language_model(family: str) -> Any:
    torch.manual_seed(1)
    rope = {"rope_theta": 100.0, "rope_type": "default", "mrope_section": [2, 3, 3]}
    text = {**TEXT, "rope_parameters": rope}
    common: dict[str, Any] = {
        "image_token_id": 60,
        "video_token_id": 61,
        "vision_start_token_id": 62,
        "vision_end_token_id": 63,
    }
    if family == "qwen2_vl":
        vision = {"depth": 3, "embed_dim": 48, "num_heads": 2, "mlp_ratio": 2, "hidden_size": 32}
        model: Any = Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision, **common))
    elif family == "qwen2_5_vl":
        vision = {"depth": 4, "hidden_size": 48, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 32}
        windows = {"window_size": 56, "fullatt_block_indexes": [1, 3]}
        config = Qwen2_5_VLConfig(text_config=text, vision_config={**vision, **windows}, **common)
        model = Qwen2_5_VLForConditionalGeneration(config)
    else:
        vision = {"depth": 4, "hidden_size": 48, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 32}
        deep = {"deepstack_visual_indexes": [0, 2], "num_position_embeddings": 36}
        config = Qwen3VLConfig(text_config=text, vision_config={**vision, **deep}, **common)  # type: ignore[assignment]
        model = Qwen3VLForConditionalGeneration(config)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.05 if parameter.ndim > 1 else 0.2) + (parameter.ndim < 2))
    return model.eval()


def processor_of(family: str) -> ImageProcessor:
    return ImageProcessor(patch_size=16 if family == "qwen3_vl" else 14, min_pixels=400)


def vision_folder(folder: Path, family: str) -> Path:
    """Save a model with its processor and a tokenizer of single words, ``w0`` to ``w63``."""
    vision_language_model(family).save_pretrained(folder)
    processor = processor_of(family)
    Qwen2VLImageProcessor(patch_size=processor.patch_size, min_pixels=processor.min_pixels).save_pretrained(folder)
    words = {f"w{i}": i for i in range(TEXT["vocab_size"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
