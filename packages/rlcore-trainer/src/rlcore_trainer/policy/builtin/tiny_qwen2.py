"""``builtin:tiny-qwen2``: a small Qwen2 model with its own tokenizer, built from texts and a seed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from rlcore.errors import ConfigError
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from rlcore_trainer.policy.builtin.config import TinyQwen2Config

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Pieces across which Qwen2's tokenizers never merge. Each digit is a piece. Transformers uses these pieces for every
tokenizer of a Qwen2 model, regardless of its file, so other pieces would be replaced there."""
TIED = "lm_head.weight"
"""The tied output layer, which is not stored separately."""
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
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts, config.vocabulary)
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "Qwen2Tokenizer",
        "rlcore_chat_format": "plain",
        "chat_template": TEMPLATE,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": config.positions,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    model = _model(config, tokenizer, seed)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items() if name != TIED}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer. It can encode any text, and each digit is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(texts), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    return tokenizer


def _pieces(texts: Iterable[str]) -> Iterable[str]:
    """Yield the texts split at added tokens, and the role names that occur in every conversation."""
    for text in texts:
        yield "system\nuser\nassistant\ntool\n"
        for token in (*SPECIAL, *MARKUP):
            text = text.replace(token, "\0")
        yield from text.split("\0")


def _model(config: TinyQwen2Config, tokenizer: Tokenizer, seed: int) -> Qwen2ForCausalLM:
    end, padding = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
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
        eos_token_id=end,
        pad_token_id=padding,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(described)  # type: ignore[no-untyped-call]
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=end, pad_token_id=padding
    )
    return model
