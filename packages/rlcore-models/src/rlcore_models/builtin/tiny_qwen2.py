"""``builtin:tiny-qwen2``: a small Qwen2 model with its own tokenizer, built from texts and a seed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from rlcore.errors import ConfigError
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.folder import end_tokens, write_folder
from rlcore_models.builtin.tokenizer import train_tokenizer

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build(folder: Path, texts: Iterable[str], seed: int, config: TinyQwen2Config) -> None:
    """Write a Hugging Face model folder. The same texts, seed and configuration give the same files."""
    if config.width % (2 * config.heads):
        raise ConfigError(
            "the model's width must be a multiple of twice its heads",
            found=f"width = {config.width}, heads = {config.heads}",
            where="model.builder",
            fix=f"model.builder.width={2 * config.heads * max(1, config.width // (2 * config.heads))}",
        )
    tokenizer = train_tokenizer(texts, config.vocabulary)
    write_folder(folder, _model(config, tokenizer, seed), tokenizer, TEMPLATE, config.positions)


def _model(config: TinyQwen2Config, tokenizer: Tokenizer, seed: int) -> Qwen2ForCausalLM:
    described = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=config.width,
        intermediate_size=config.feed_forward,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.positions,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        initializer_range=config.initial_std,
        tie_word_embeddings=True,
        architectures=["Qwen2ForCausalLM"],
        dtype="float32",
        **end_tokens(tokenizer),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(described)  # type: ignore[no-untyped-call]
