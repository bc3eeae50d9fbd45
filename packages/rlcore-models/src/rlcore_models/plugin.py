"""The built-in tiny models, registered with the same hook as those of any plugin."""

from __future__ import annotations

from rlcore.specs import ModelBuilderSpec

rlcore_specs = [
    ModelBuilderSpec(
        id="tiny-qwen2",
        target="rlcore_models.builtin.tiny_qwen2:build",
        config="rlcore_models.builtin.config:TinyQwen2Config",
        summary="Qwen2 architecture with about a million parameters and its own tokenizer, built from a seed.",
    ),
    ModelBuilderSpec(
        id="tiny-qwen2.5-vl",
        target="rlcore_models.builtin.tiny_qwen_vl:build_qwen25",
        config="rlcore_models.builtin.config:TinyQwen25VLConfig",
        summary="Qwen2.5-VL architecture with about 0.4 million parameters, its own tokenizer and image processor.",
    ),
    ModelBuilderSpec(
        id="tiny-qwen3-vl",
        target="rlcore_models.builtin.tiny_qwen_vl:build_qwen3",
        config="rlcore_models.builtin.config:TinyQwen3VLConfig",
        summary="Qwen3-VL architecture with about 0.4 million parameters, its own tokenizer and image processor.",
    ),
]
