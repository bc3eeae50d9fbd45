"""``builtin:tiny-qwen2.5-vl`` and ``builtin:tiny-qwen3-vl``: small vision-language models, built from texts and a seed.

Each folder also has an image processor. Its normalisation maps grey 127.5 to zero, so a grey background adds nothing
to the patches, and the model finds objects sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from rlcore_models.builtin.config import TinyQwen3VLConfig, TinyQwen25VLConfig, TinyVisionConfig
from rlcore_models.builtin.folder import end_tokens, write_folder, write_settings
from rlcore_models.builtin.tokenizer import SPECIAL, VISION, train_tokenizer

MERGE, FRAMES = 2, 2
"""Side in patches of a visual token, and frames of a patch, as in all published models of these families."""
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if 'text' in part %}{{ part.text }}{% else %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% endif %}"
    "{% endfor %}"
    "{% endif %}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build_qwen25(folder: Path, texts: Iterable[str], seed: int, config: TinyQwen25VLConfig) -> None:
    """Write a Hugging Face folder of Qwen2.5-VL. The same texts, seed and configuration give the same files."""
    tokenizer = train_tokenizer(texts, config.vocabulary, (*SPECIAL, *VISION))
    vision = {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": list(range(config.vision_layers))}
    described = Qwen2_5_VLConfig(
        text_config=_text(config, tokenizer, mrope_section=_sections(config, 3 / 8)),
        vision_config=_vision(config) | vision,
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        dtype="float32",
        **_vision_tokens(tokenizer),
    )
    _write(folder, tokenizer, _seeded(Qwen2_5_VLForConditionalGeneration, described, seed), config)


def build_qwen3(folder: Path, texts: Iterable[str], seed: int, config: TinyQwen3VLConfig) -> None:
    """Write a Hugging Face folder of Qwen3-VL. The same texts, seed and configuration give the same files."""
    tokenizer = train_tokenizer(texts, config.vocabulary, (*SPECIAL, *VISION))
    rope = {"mrope_section": _sections(config, 5 / 16), "mrope_interleaved": True}
    vision = {
        "patch_size": 16,
        "num_position_embeddings": config.vision_positions**2,
        "deepstack_visual_indexes": list(range(config.deepstack)),
    }
    described = Qwen3VLConfig(
        text_config=_text(config, tokenizer, **rope) | {"head_dim": config.width // config.heads},
        vision_config=_vision(config) | vision,
        architectures=["Qwen3VLForConditionalGeneration"],
        dtype="float32",
        **_vision_tokens(tokenizer),
    )
    model = _seeded(Qwen3VLForConditionalGeneration, described, seed)
    _write(folder, tokenizer, model, config)


def _sections(config: TinyVisionConfig, part: float) -> list[int]:
    """The rotary frequencies of time, rows and columns; rows and columns have this part of all frequencies each."""
    half = config.width // config.heads // 2
    side = int(half * part)
    return [half - 2 * side, side, side]


def _text(config: TinyVisionConfig, tokenizer: Tokenizer, **rope: object) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "max_position_embeddings": config.positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta, **rope},
        "initializer_range": config.initial_std,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        **end_tokens(tokenizer),
    }


def _vision(config: TinyVisionConfig) -> dict[str, Any]:
    return {
        "depth": config.vision_layers,
        "hidden_size": config.vision_width,
        "num_heads": config.vision_heads,
        "intermediate_size": config.vision_feed_forward,
        "out_hidden_size": config.width,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "initializer_range": config.initial_std,
    }


def _vision_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    return {
        **{name: tokenizer.token_to_id(token) for name, token in zip(names, VISION, strict=True)},
        "tie_word_embeddings": False,
        **end_tokens(tokenizer),
    }


def _seeded(kind: type[PreTrainedModel], described: PreTrainedConfig, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(described)


def _write(folder: Path, tokenizer: Tokenizer, model: PreTrainedModel, config: TinyVisionConfig) -> None:
    write_folder(folder, model, tokenizer, TEMPLATE, config.positions)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")  # processors do not read the tokenizer's
    kind = type(model).__name__.removesuffix("ForConditionalGeneration")
    settings = {
        "patch_size": model.config.vision_config.patch_size,
        "temporal_patch_size": FRAMES,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": f"{kind}Processor",
    }
    limits = {"shortest_edge": config.min_pixels, "longest_edge": config.max_pixels}
    image = {"size": limits, **settings, "image_processor_type": "Qwen2VLImageProcessor"}
    write_settings(folder / "preprocessor_config.json", image)
    family = "Qwen3VL" if kind == "Qwen3VL" else "Qwen2VL"
    video = {"size": limits, **settings, "video_processor_type": f"{family}VideoProcessor"}
    write_settings(folder / "video_preprocessor_config.json", video)
