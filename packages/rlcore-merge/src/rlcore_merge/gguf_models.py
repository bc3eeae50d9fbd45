"""Decoders in GGUF files: the names and shapes of their tensors, and the values of their config.json.

Axes of tensors: H hidden size, F inner size of the MLP, Q width of all queries, K width of all keys, D width of one
head, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.models.config_file import LIMITS

from rlcore_merge.blocks import Shape
from rlcore_merge.gguf_files import Header, Items

_LAYER = {
    "attn_norm.weight": ("input_layernorm.weight", "H"),
    "attn_q.weight": ("self_attn.q_proj.weight", "QH"),
    "attn_k.weight": ("self_attn.k_proj.weight", "KH"),
    "attn_v.weight": ("self_attn.v_proj.weight", "KH"),
    "attn_output.weight": ("self_attn.o_proj.weight", "HQ"),
    "ffn_gate.weight": ("mlp.gate_proj.weight", "FH"),
    "ffn_up.weight": ("mlp.up_proj.weight", "FH"),
    "ffn_down.weight": ("mlp.down_proj.weight", "HF"),
}
_AFTER_ATTENTION = {"ffn_norm.weight": ("post_attention_layernorm.weight", "H")}
_BIASES = {
    "attn_q.bias": ("self_attn.q_proj.bias", "Q"),
    "attn_k.bias": ("self_attn.k_proj.bias", "K"),
    "attn_v.bias": ("self_attn.v_proj.bias", "K"),
}
_HEAD_NORMS = {
    "attn_q_norm.weight": ("self_attn.q_norm.weight", "D"),
    "attn_k_norm.weight": ("self_attn.k_norm.weight", "D"),
}
_FOUR_NORMS = {
    "post_attention_norm.weight": ("post_attention_layernorm.weight", "H"),
    "ffn_norm.weight": ("pre_feedforward_layernorm.weight", "H"),
    "post_ffw_norm.weight": ("post_feedforward_layernorm.weight", "H"),
}
_SIZES = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
}
_TOKENS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "unknown_token_id": "unk_token_id",
    "padding_token_id": "pad_token_id",
}
VOCABULARY = "tokenizer.ggml.tokens"
EMBEDDING = "token_embd.weight"
FREQUENCIES = "rope_freqs.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What distinguishes a decoder from the others."""

    model_type: str
    class_name: str
    layer: Mapping[str, tuple[str, str]]
    """The names in transformers and the axes of a layer's tensors."""
    more: Mapping[str, str] = field(default_factory=dict)
    """More metadata keys and their names in config.json."""
    head_width: int | None = None
    """The width of a head if the file does not state it; None divides the hidden size by the heads."""
    paired_rows: bool = False
    """Whether the rows of queries and keys that are rotated together are stored side by side."""
    norm_offset: float = 0.0
    """What the file adds to the weights of norms."""


ARCHITECTURES = {
    "llama": Architecture(
        model_type="llama",
        class_name="LlamaForCausalLM",
        layer=_LAYER | _AFTER_ATTENTION,
        more={"rope.dimension_count": "head_dim"},
        paired_rows=True,
    ),
    "qwen2": Architecture(model_type="qwen2", class_name="Qwen2ForCausalLM", layer=_LAYER | _AFTER_ATTENTION | _BIASES),
    "qwen3": Architecture(
        model_type="qwen3",
        class_name="Qwen3ForCausalLM",
        layer=_LAYER | _AFTER_ATTENTION | _HEAD_NORMS,
        more={"attention.key_length": "head_dim"},
        head_width=128,
    ),
    "gemma3": Architecture(
        model_type="gemma3_text",
        class_name="Gemma3ForCausalLM",
        layer=_LAYER | _FOUR_NORMS | _HEAD_NORMS,
        more={"attention.key_length": "head_dim", "attention.sliding_window": "sliding_window"},
        head_width=256,
        norm_offset=1.0,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder in a file: its architecture and the values of its config.json."""

    architecture: Architecture
    config: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def head_width(self) -> int:
        """Width of one head."""
        width: int = (
            self.config.get("head_dim")
            or self.architecture.head_width
            or self.config["hidden_size"] // self.config["num_attention_heads"]
        )
        return width

    def tensors(self) -> Iterator[tuple[str, str, Shape]]:
        """The name in the file, the name in transformers and the shape of each tensor."""
        config, width = self.config, self.head_width
        sizes = {
            "H": config["hidden_size"],
            "F": config["intermediate_size"],
            "Q": config["num_attention_heads"] * width,
            "K": config["num_key_value_heads"] * width,
            "D": width,
            "V": config["vocab_size"],
        }
        outside = {EMBEDDING: ("model.embed_tokens.weight", "VH"), "output_norm.weight": ("model.norm.weight", "H")}
        if not config["tie_word_embeddings"]:
            outside["output.weight"] = ("lm_head.weight", "VH")
        for name, (ours, axes) in outside.items():
            yield name, ours, tuple(sizes[axis] for axis in axes)
        for index in range(config["num_hidden_layers"]):
            for name, (ours, axes) in self.architecture.layer.items():
                yield f"blk.{index}.{name}", f"model.layers.{index}.{ours}", tuple(sizes[axis] for axis in axes)


def model_of(header: Header) -> Model:
    """The decoder that the metadata of a file describes.

    Raises:
        ValueError: the architecture is not supported, or a value is missing or wrong.
    """
    metadata = header.metadata
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        stated = repr(name)[:80] if name is not None else "missing"
        raise ValueError(f"general.architecture is {stated}; supported are {', '.join(ARCHITECTURES)}")
    if metadata.get("split.count", 1) not in (0, 1):
        raise ValueError(f"it is one of {metadata['split.count']} parts: join them with llama-gguf-split --merge")
    architecture = ARCHITECTURES[name]
    config: dict[str, Any] = {}
    for key, ours in {**_SIZES, **architecture.more}.items():
        if key in _SIZES or f"{name}.{key}" in metadata:
            config[ours] = _size(metadata.get(f"{name}.{key}"), f"{name}.{key}", LIMITS.get(ours, 2**31))
    heads = f"{name}.attention.head_count_kv"
    groups = metadata.get(heads, config["num_attention_heads"])
    config["num_key_value_heads"] = _size(groups, heads, config["num_attention_heads"])
    for key, ours in (("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")):
        if (value := metadata.get(f"{name}.{key}")) is not None:
            if type(value) is not float or not 0 < value < math.inf:
                raise ValueError(f"{name}.{key} is {value!r} and not a positive number")
            config[ours] = value
    if EMBEDDING not in header.tensors:
        raise ValueError(f"it has no tensor {EMBEDDING}")
    config["vocab_size"] = rows = header.tensors[EMBEDDING].shape[0]
    if metadata.get(f"{name}.vocab_size", rows) != rows:
        raise ValueError(f"{name}.vocab_size is {metadata[f'{name}.vocab_size']!r}, and {EMBEDDING} has {rows:,} rows")
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    config.update(_special_tokens(header, rows))
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        raise ValueError(f"{config['num_attention_heads']} heads are not a multiple of the key-value heads, {groups}")
    model = Model(architecture=architecture, config=config, notes=tuple(_notes(header, name)))
    if model.head_width % 2:
        raise ValueError(f"the heads have the odd width {model.head_width:,}")
    return model


def _size(value: Any, key: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{key} is {'missing' if value is None else repr(value)[:80]} and not 1 to {most:,}")
    return value


def _special_tokens(header: Header, rows: int) -> Iterator[tuple[str, int]]:
    """The special tokens of config.json. The vocabulary must be there and must have them."""
    metadata = header.metadata
    tokens = metadata.get(VOCABULARY)
    if not isinstance(tokens, Items) or not tokens.text:
        raise ValueError(f"it has no vocabulary: {VOCABULARY} is not an array of texts")
    if not 1 <= tokens.count <= rows:
        raise ValueError(f"{VOCABULARY} has {tokens.count:,} tokens, and {EMBEDDING} has {rows:,} rows")
    for key in ("scores", "token_type"):
        items = metadata.get(f"tokenizer.ggml.{key}", Items(text=False, count=tokens.count))
        if items != Items(text=False, count=tokens.count):
            raise ValueError(f"tokenizer.ggml.{key} does not have one number for each of {tokens.count:,} tokens")
    for key, ours in _TOKENS.items():
        index = metadata.get(f"tokenizer.ggml.{key}")
        if index is None:
            continue
        if type(index) is not int or not 0 <= index < tokens.count:
            raise ValueError(f"tokenizer.ggml.{key} is {index!r}, and the vocabulary has {tokens.count:,} tokens")
        yield ours, index


def _notes(header: Header, name: str) -> Iterator[str]:
    """What the file says about rotary positions and config.json, like that of transformers, does not."""
    scaling = header.metadata.get(f"{name}.rope.scaling.type", "none")
    if scaling != "none":
        yield (
            f"the positions are scaled ({name}.rope.scaling.type is {scaling!r}), but not in config.json: set "
            "rope_parameters there as in the original model, or pass it with --base"
        )
    elif FREQUENCIES in header.tensors:
        yield (
            f"the positions are scaled by {FREQUENCIES}, but not in config.json: set rope_parameters there as in the "
            "original model, or pass it with --base"
        )
