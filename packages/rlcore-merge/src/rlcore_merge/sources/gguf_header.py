"""The header of GGUF files: typed metadata, the places of the tensors, and the decoder that they describe.

Every count, length and offset is bounded before it is used, so that a damaged or hostile file allocates nothing large.
The libraries that convert a file read it again and check less, so a file is read here first. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

Axes of tensors: H hidden size, F inner size of the MLP, Q width of all queries, K width of all keys, D width of one
head, V vocabulary.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.config_file import LIMITS

from rlcore_merge.tensors import COPY_AGAIN, MappedFile, Shape

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Version 1 has counts of 32 bits, and no published model uses it."""
MOST_ENTRIES = 2**12
"""Metadata entries. Published models have about 40."""
MOST_TENSORS = 2**16
"""Tensors. Published models have at most 2,000."""
MOST_ITEMS = 2**21
"""Items of all arrays together. The vocabulary of Gemma 3 has 786,432."""
MOST_BYTES = 2**26
"""Bytes of the header. That of Gemma 3 has 7 million."""
LONGEST_NAME = 2**8
"""Bytes of a metadata key or of the name of a tensor."""
LONGEST_TEXT = 2**20
"""Bytes of a single string, such as a chat template."""
LONGEST_ITEM = 2**11
"""Bytes of a string in an array, such as a token."""
MOST_AXES = 4
"""Axes of a tensor in ggml."""
LARGEST_ALIGNMENT = 2**16
SMALLEST_ENTRY, SMALLEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of the shortest possible entry and description of a tensor."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The `struct` format of each type of numbers."""
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Items:
    """An array in the metadata. Its items were skipped."""

    text: bool
    """Whether the items are strings."""
    count: int


Value = int | float | bool | str | Items


@dataclass(frozen=True, slots=True)
class Described:
    """A tensor as the header describes it."""

    shape: Shape
    """Lengths of the axes in row-major order, which is the reverse of the file's."""
    type: int
    """ggml's number of the type."""
    offset: int
    """Bytes from the start of the data."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a file contains."""

    file: MappedFile
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Described]
    data: int
    """Position of the data in bytes."""


def read(path: Path) -> Header:
    """Read the header of a file.

    Raises:
        UserError: the file is truncated, is not a GGUF file of a supported version, or exceeds a limit.
    """
    file = MappedFile(path)
    try:
        return _read(file)
    except struct.error:  # a number does not fit in the rest of the file
        found = f"it ends in the header, after {file.size:,} bytes"
    except UnicodeDecodeError as error:
        found = f"a text is not UTF-8: {error.object[:40]!r}"
    except ValueError as error:
        found = str(error)
    raise UserError("a GGUF file cannot be read", found=found, where=str(path), fix=COPY_AGAIN)


def _read(file: MappedFile) -> Header:
    if (magic := bytes(file.buffer[:4])) != MAGIC:
        raise ValueError(f"it begins with {magic!r} instead of {MAGIC!r}" if magic else "it is empty")
    source = _Source(file)
    version, tensors, entries = source.numbers("IQQ")
    if version not in VERSIONS:
        if version & 0xFFFF == 0:
            raise ValueError("its numbers are big-endian; only little-endian files are supported")
        raise ValueError(f"it has version {version}; supported are {' and '.join(map(str, VERSIONS))}")
    source.bound("metadata entries", entries, MOST_ENTRIES, SMALLEST_ENTRY)
    source.bound("tensors", tensors, MOST_TENSORS, SMALLEST_TENSOR)
    metadata: dict[str, Value] = {}
    for _ in range(entries):
        key = source.text(LONGEST_NAME, "a metadata key")
        if key in metadata:
            raise ValueError(f"the metadata entry {key!r} occurs twice")
        metadata[key] = source.value(key)
    described: dict[str, Described] = {}
    for _ in range(tensors):
        name = source.text(LONGEST_NAME, "the name of a tensor")
        if name in described:
            raise ValueError(f"the tensor {name!r} occurs twice")
        described[name] = source.tensor(name)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r} and not a power of two up to {LARGEST_ALIGNMENT:,}")
    return Header(file, metadata, described, -(-source.at // alignment) * alignment)


class _Source:
    """Reads the header of a file in order, within its limits."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.at = len(MAGIC)
        self._items = 0

    def bound(self, what: str, count: int, most: int, smallest: int) -> None:
        """Raise `ValueError` if there are more than ``most``, or more than fit in the rest of the file."""
        if count > most:
            raise ValueError(f"it states {count:,} {what}, and the limit is {most:,}")
        if count * smallest > self.file.size - self.at:
            raise ValueError(f"it is truncated: {count:,} {what} do not fit in {self.file.size:,} bytes")

    def numbers(self, layout: str) -> tuple[int, ...]:
        """The numbers of a `struct` format in little-endian order. Raises `struct.error` at the end of the file."""
        found = struct.unpack_from(f"<{layout}", self.file.buffer, self.at)
        self._skip(struct.calcsize(f"<{layout}"))
        return found

    def text(self, most: int, what: str) -> str:
        """A string of at most ``most`` bytes."""
        (length,) = self.numbers("Q")
        self.bound(f"bytes of {what}", length, most, 1)
        begin = self.at
        self._skip(length)
        return bytes(self.file.buffer[begin : self.at]).decode("utf-8")

    def value(self, key: str) -> Value:
        """The value of a metadata entry."""
        (kind,) = self.numbers("I")
        if kind == _STRING:
            return self.text(LONGEST_TEXT, f"the text {key!r}")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise ValueError(f"the metadata entry {key!r} has the unknown type {kind}")
        return self.numbers(_SCALARS[kind])[0]

    def _array(self, key: str) -> Items:
        kind, count = self.numbers("IQ")
        if kind != _STRING and kind not in _SCALARS:
            raise ValueError(f"the array {key!r} has items of the unsupported type {kind}")
        width = 8 if kind == _STRING else struct.calcsize(f"<{_SCALARS[kind]}")
        self.bound(f"items of the array {key!r} and those before it", self._items + count, MOST_ITEMS, 0)
        self.bound(f"items of the array {key!r}", count, MOST_ITEMS, width)
        self._items += count
        if kind != _STRING:
            self._skip(count * width)
            return Items(text=False, count=count)
        for _ in range(count):
            (length,) = self.numbers("Q")
            self.bound(f"bytes of an item of the array {key!r}", length, LONGEST_ITEM, 1)
            self._skip(length)
        return Items(text=True, count=count)

    def tensor(self, name: str) -> Described:
        """The description of a tensor after its name."""
        (axes,) = self.numbers("I")
        if not 1 <= axes <= MOST_AXES:
            raise ValueError(f"the tensor {name!r} has {axes:,} axes; supported are 1 to {MOST_AXES}")
        shape = tuple(reversed(self.numbers(f"{axes}Q")))
        if 0 in shape or prod(shape) >= 2**62:
            raise ValueError(f"the tensor {name!r} has the shape {list(shape)}")
        kind, offset = self.numbers("IQ")
        return Described(shape, kind, offset)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > MOST_BYTES:
            raise ValueError(f"its header has more than {MOST_BYTES:,} bytes")


_LAYER = {
    "attn_norm.weight": ("input_layernorm.weight", "H"), "attn_q.weight": ("self_attn.q_proj.weight", "QH"),
    "attn_k.weight": ("self_attn.k_proj.weight", "KH"), "attn_v.weight": ("self_attn.v_proj.weight", "KH"),
    "attn_output.weight": ("self_attn.o_proj.weight", "HQ"), "ffn_gate.weight": ("mlp.gate_proj.weight", "FH"),
    "ffn_up.weight": ("mlp.up_proj.weight", "FH"), "ffn_down.weight": ("mlp.down_proj.weight", "HF"),
    "ffn_norm.weight": ("post_attention_layernorm.weight", "H"),
}  # fmt: skip
_BIASES = {
    "attn_q.bias": ("self_attn.q_proj.bias", "Q"), "attn_k.bias": ("self_attn.k_proj.bias", "K"),
    "attn_v.bias": ("self_attn.v_proj.bias", "K"),
}  # fmt: skip
_HEAD_NORMS = {
    "attn_q_norm.weight": ("self_attn.q_norm.weight", "D"), "attn_k_norm.weight": ("self_attn.k_norm.weight", "D"),
}  # fmt: skip
_FOUR_NORMS = {
    "post_attention_norm.weight": ("post_attention_layernorm.weight", "H"),
    "ffn_norm.weight": ("pre_feedforward_layernorm.weight", "H"),
    "post_ffw_norm.weight": ("post_feedforward_layernorm.weight", "H"),
}
_SIZES = {
    "context_length": "max_position_embeddings", "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size", "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
}  # fmt: skip
_TOKENS = {
    "bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "unknown_token_id": "unk_token_id",
    "padding_token_id": "pad_token_id",
}  # fmt: skip
VOCABULARY = "tokenizer.ggml.tokens"
EMBEDDING = "token_embd.weight"
FREQUENCIES = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
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


_WIDTH = {"attention.key_length": "head_dim"}
ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _LAYER, {"rope.dimension_count": "head_dim"}, paired_rows=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", _LAYER | _BIASES),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _LAYER | _HEAD_NORMS, _WIDTH, head_width=128),
    "gemma3": Architecture(
        "gemma3_text",
        "Gemma3ForCausalLM",
        _LAYER | _FOUR_NORMS | _HEAD_NORMS,
        {**_WIDTH, "attention.sliding_window": "sliding_window"},
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
