"""Check the sizes in a model's ``config.json`` before a library allocates memory for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.images.fitting import FAMILIES
from rlcore.json_files import read_json

CONFIG = "config.json"
MAX_BYTES = 50_000_000
"""Limit of a JSON file of a model folder, except for the tokenizer."""
LIMITS = {
    "num_hidden_layers": 2**10,
    "hidden_size": 2**18,
    "intermediate_size": 2**22,
    "num_attention_heads": 2**12,
    "num_key_value_heads": 2**12,
    "head_dim": 2**14,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**31,
}
"""The largest accepted sizes, about ten times those of the largest published models."""
VISION_LIMITS = LIMITS | {
    "depth": 2**10,
    "embed_dim": 2**18,
    "out_hidden_size": 2**18,
    "num_heads": 2**12,
    "num_position_embeddings": 2**24,
    "patch_size": 2**8,
    "spatial_merge_size": 2**8,
    "temporal_patch_size": 2**8,
    "in_channels": 2**8,
    "in_chans": 2**8,
}
"""The largest accepted sizes of an image encoder."""
SMALLEST_WEIGHT_BYTES = 0.25
"""A weight of two bits."""


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a folder's ``config.json``.

    Raises:
        UserError: it is missing, damaged, or not an object.
    """
    path = folder / CONFIG
    try:
        config = read_json(path, limit=MAX_BYTES)
    except (OSError, ValueError) as error:
        fix = "save or download it again"
        raise UserError(f"the model's {CONFIG} cannot be read", found=str(error), where=str(path), fix=fix) from None
    if not isinstance(config, dict):
        raise _wrong(path, "must be a JSON object", type(config).__name__)
    return config


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty if there is none or it cannot be read, which its reader reports."""
    try:
        found = read_json(path, limit=MAX_BYTES) if path.is_file() else None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def context_tokens(folder: Path) -> int | None:
    """The maximum length of a sequence of a folder's model in tokens; None if it does not state one."""
    if not (folder / CONFIG).is_file():
        return None
    config = read_config(folder)
    inner = config.get("text_config") or {}
    found = config.get("max_position_embeddings") or inner.get("max_position_embeddings")
    return int(found) if found else None


def check_config(folder: Path) -> None:
    """Raise `UserError` for sizes in a ``config.json`` that no model has, or that its weights do not have."""
    config, path = read_config(folder), folder / CONFIG
    parts = [(config, LIMITS)]
    for name, limits in (("text_config", LIMITS), ("vision_config", VISION_LIMITS)):
        inner = config.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise _wrong(path, f"needs an object as {name}", repr(inner)[:80])
        if name == "vision_config" and config.get("model_type") not in FAMILIES:
            inner = {key: value for key, value in (inner or {}).items() if type(value) is int}  # others may have lists
        parts.append((inner or {}, limits))
    for part, limits in parts:
        _check_sizes(part, limits, path)
        part = _with_usual_names(part)
        _check_heads(part, path)
        needed = _least_parameters(part) * SMALLEST_WEIGHT_BYTES
        if needed > (there := _weight_bytes(folder)):
            found = f"sizes that need at least {needed:,.0f} bytes, and weights of {there:,} bytes"
            raise _wrong(path, "must match the weights", found)


def _with_usual_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of an image encoder by the names that text models use.

    In Qwen2-VL, ``hidden_size`` is the size of its output, and ``embed_dim`` that of its layers.
    """
    names = {"depth": "num_hidden_layers", "num_heads": "num_attention_heads", "embed_dim": "hidden_size"}
    return {**config, **{usual: config[name] for name, usual in names.items() if config.get(name) is not None}}


def _check_sizes(config: Mapping[str, Any], limits: Mapping[str, int], path: Path) -> None:
    for name, limit in limits.items():
        value = config.get(name)
        if value is not None and not (type(value) is int and 1 <= value <= limit):
            raise _wrong(path, f"needs an integer from 1 to {limit:,} as {name}", repr(value)[:80])


def _check_heads(config: Mapping[str, Any], path: Path) -> None:
    heads, width = config.get("num_attention_heads"), config.get("hidden_size")
    groups = config.get("num_key_value_heads")
    if heads and groups and heads % groups:
        found = f"num_attention_heads {heads}, num_key_value_heads {groups}"
        raise _wrong(path, "needs a number of heads that is a multiple of the key-value heads", found)
    if heads and width and not config.get("head_dim") and width % heads:
        found = f"hidden_size {width}, num_attention_heads {heads}"
        raise _wrong(path, "needs a hidden size that is a multiple of the heads", found)


def _least_parameters(config: Mapping[str, Any]) -> int:
    """A lower bound: the embedding, and one matrix of attention and one of the MLP in each layer."""
    width, layers = (config.get(name) or 0 for name in ("hidden_size", "num_hidden_layers"))
    heads, size = config.get("num_attention_heads") or 0, config.get("head_dim")
    attention = width * (heads * size if size else width)
    mlp = width * (config.get("intermediate_size") or 0)
    return int(width * (config.get("vocab_size") or 0) + layers * (attention + mlp))


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))


def _wrong(path: Path, needs: str, found: str) -> UserError:
    fix = "restore the file of the model, or save the model again"
    return UserError(f"the model's {CONFIG} {needs}", found=found, where=str(path), fix=fix)
