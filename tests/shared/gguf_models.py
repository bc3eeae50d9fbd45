"""Small GGUF files of each supported architecture, written with the gguf library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from byte_level import byte_level_tokenizer

Q = gguf.GGMLQuantizationType
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
TEXT = "What is 12 + 30? The answer is 42, isn't it? " * 4
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
HIDDEN, INNER, HEADS, GROUPS, LAYERS = 64, 256, 4, 2, 2
WIDTHS = {"llama": 16, "qwen2": 16, "qwen3": 128, "gemma3": 32}
"""Width of a head. For Qwen 3, transformers reads no other width."""
TYPES = (Q.Q8_0, Q.Q4_1, Q.F16, Q.F32, Q.Q4_0, Q.BF16, Q.Q5_1)
"""The types of the matrices, in turn."""
WIDE = (Q.Q4_K, Q.Q6_K)
"""Types with blocks of 256 elements, for the matrices that have such rows."""
CONTROL = 3
"""The type of special tokens in the vocabulary of a file."""


def byte_level_vocabulary() -> dict[str, Any]:
    """Vocabulary and merges as in the files of Llama 3, Qwen and SmolLM2."""
    import json

    model = json.loads(byte_level_tokenizer([TEXT], 280).to_str())["model"]
    tokens = [*SPECIAL, *sorted(model["vocab"], key=model["vocab"].get)]
    merges = [" ".join(pair) for pair in model["merges"]]
    kinds = [CONTROL] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL))
    return {"model": "gpt2", "pre": "qwen2", "tokens": tokens, "merges": merges, "types": kinds, "scores": None}


def sentencepiece_vocabulary() -> dict[str, Any]:
    """Vocabulary and scores as in the files of Llama 2 and Gemma, which have no merges."""
    pieces = sorted({*TEXT.replace(" ", "\u2581"), "\u2581is", "\u2581i", "he", "\u2581T", "\u2581The", "wer", "we"})
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = [2, CONTROL, CONTROL] + [6] * 256 + [1] * len(pieces)
    scores = [0.0] * 259 + [-float(index) for index in range(len(pieces))]
    return {"model": "llama", "pre": "default", "tokens": tokens, "merges": None, "types": kinds, "scores": scores}


def write(path: Path, architecture: str, *, tied: bool = True, seed: int = 0, **changes: Any) -> Path:
    """Write a file with random weights.

    Args:
        path: of the file
        architecture: one of `WIDTHS`
        tied: whether the output layer is the embedding
        seed: of the weights
        changes: ``vocabulary``, ``head_width`` or ``drop``, the names of tensors to leave out
    """
    width = changes.get("head_width", WIDTHS[architecture])
    words = changes.get("vocabulary")
    words = words or (sentencepiece_vocabulary() if architecture == "gemma3" else byte_level_vocabulary())
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("small")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(50000.0)
    if architecture == "llama":
        writer.add_rope_dimension_count(width)
    else:
        writer.add_key_length(width)
    if architecture == "gemma3":
        writer.add_sliding_window(64)
    writer.add_tokenizer_model(words["model"])
    writer.add_tokenizer_pre(words["pre"])
    writer.add_token_list(words["tokens"])
    writer.add_token_types(words["types"])
    if words["merges"] is not None:
        writer.add_token_merges(words["merges"])
    if words["scores"] is not None:
        writer.add_token_scores(words["scores"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, values, kind in _tensors(architecture, width, len(words["tokens"]), tied, seed):
        if name not in changes.get("drop", ()):
            writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(
    architecture: str, width: int, vocabulary: int, tied: bool, seed: int
) -> Iterator[tuple[str, np.ndarray[Any, Any], gguf.GGMLQuantizationType]]:
    random = np.random.default_rng(seed)
    queries, keys = HEADS * width, GROUPS * width
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        shapes["output.weight"] = (vocabulary, HIDDEN)
    for layer in range(LAYERS):
        of_layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (queries, HIDDEN),
            "attn_k.weight": (keys, HIDDEN),
            "attn_v.weight": (keys, HIDDEN),
            "attn_output.weight": (HIDDEN, queries),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        if architecture == "qwen2":
            of_layer |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
        if architecture in ("qwen3", "gemma3"):
            of_layer |= {"attn_q_norm.weight": (width,), "attn_k_norm.weight": (width,)}
        if architecture == "gemma3":
            of_layer |= {"post_attention_norm.weight": (HIDDEN,), "post_ffw_norm.weight": (HIDDEN,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
    for index, (name, shape) in enumerate(shapes.items()):
        values = random.normal(0.0, 0.05, shape).astype(np.float32) + np.float32(len(shape) == 1)
        kind = Q.F32 if len(shape) == 1 else TYPES[index % len(TYPES)]
        if "ffn_down" in name:  # gguf cannot quantise to these types, so the blocks have random bits and small scales
            kind = WIDE[index % len(WIDE)]
            yield name, _random_blocks(random, shape, kind), kind
        else:
            yield name, gguf.quantize(values, kind), kind


def _random_blocks(
    random: np.random.Generator, shape: tuple[int, ...], kind: gguf.GGMLQuantizationType
) -> np.ndarray[Any, Any]:
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // elements, size), dtype=np.uint8)
    scale = np.frombuffer(np.float16(0.001).tobytes(), np.uint8)
    places = {Q.Q4_K: (0, 2), Q.Q6_K: (208,)}[kind]
    for place in places:
        blocks[:, place : place + 2] = scale
    return blocks.reshape(shape[0], -1)
