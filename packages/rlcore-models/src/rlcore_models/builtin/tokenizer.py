"""Byte-level tokenizers of the built-in models, trained on the texts of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Pieces across which Qwen2's tokenizers never merge. Each digit is a piece. Transformers uses these pieces for every
tokenizer of a Qwen2 model, regardless of its file, so other pieces would be replaced there."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, special: Sequence[str] = SPECIAL) -> Tokenizer:
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
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(texts, special), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    return tokenizer


def _pieces(texts: Iterable[str], special: Sequence[str]) -> Iterable[str]:
    """Yield the texts split at added tokens, and the role names that occur in every conversation."""
    for text in texts:
        yield "system\nuser\nassistant\ntool\n"
        for token in (*special, *MARKUP):
            text = text.replace(token, "\0")
        yield from text.split("\0")
