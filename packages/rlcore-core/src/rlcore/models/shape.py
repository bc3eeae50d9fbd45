"""The sizes of a model, read from its folder without loading the weights, for estimates of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.config_file import read_config
from rlcore.models.fingerprint import safetensors_header

_NAMED = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[Bb](?![a-z])")
"""``3B`` in ``Qwen2.5-3B-Instruct``."""
OF_TOWER = ".visual."
"""Part of the names of a vision tower's weights."""
_BYTES = {"float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerShape:
    """Sizes of a vision tower. A size that is not known is 0."""

    parameters: int
    layers: int
    width: int
    feed_forward: int
    patches: int
    """Number of patches that become one visual token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder. A size that is not known is 0."""

    parameters: int
    layers: int = 0
    width: int = 0
    """Size of a hidden state."""
    feed_forward: int = 0
    """Hidden size of the feed-forward layers that one token passes."""
    key_width: int = 0
    """Size of the keys of one token in one layer."""
    vocabulary: int = 0
    matrices: tuple[tuple[str, int, int], ...] = ()
    """Name, output size and input size of each weight matrix."""
    tower: TowerShape | None = None
    """The vision tower; None for a text model."""


def shape_of_folder(folder: Path) -> ModelShape:
    """The sizes of the model in a Hugging Face folder.

    Raises:
        UserError: the configuration or the weights cannot be read.
    """
    config = read_config(folder)
    shapes = {
        name: tuple(entry["shape"])
        for path in sorted(folder.glob("*.safetensors"))
        for name, entry in safetensors_header(path)[0].items()
        if name != "__metadata__"
    }
    parameters = sum(map(prod, shapes.values())) or _pickled(folder, config)
    matrices = tuple((name, *shape) for name, shape in shapes.items() if len(shape) == 2)
    tower = sum(prod(shape) for name, shape in shapes.items() if OF_TOWER in f".{name}")
    return shape_of_config(config, parameters=parameters, matrices=matrices, tower_parameters=tower)


def shape_of_config(
    config: dict[str, Any],
    *,
    parameters: int,
    matrices: tuple[tuple[str, int, int], ...] = (),
    tower_parameters: int = 0,
) -> ModelShape:
    """The sizes in a ``config.json``, or in its part for text."""
    text = {**config, **(config.get("text_config") or {})}

    def size(name: str) -> int:
        value = text.get(name)
        return value if isinstance(value, int) else 0

    heads = size("num_attention_heads")
    head_width = size("head_dim") or (size("hidden_size") // heads if heads else 0)
    experts = size("num_experts_per_tok") or 1
    return ModelShape(
        parameters=parameters,
        layers=size("num_hidden_layers"),
        width=size("hidden_size"),
        feed_forward=experts * (size("moe_intermediate_size") or size("intermediate_size")),
        key_width=(size("num_key_value_heads") or heads) * head_width,
        vocabulary=size("vocab_size"),
        matrices=matrices,
        tower=_tower(config, tower_parameters),
    )


def _tower(config: dict[str, Any], parameters: int) -> TowerShape | None:
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        return None

    def size(*names: str) -> int:
        return next((value for name in names if isinstance(value := vision.get(name), int)), 0)

    width = size("embed_dim", "hidden_size")
    return TowerShape(
        parameters=parameters,
        layers=size("depth", "num_hidden_layers"),
        width=width,
        feed_forward=size("intermediate_size") or size("mlp_ratio") * width,
        patches=(size("spatial_merge_size") or 1) ** 2,
    )


def shape_of_name(name: str) -> ModelShape | None:
    """The number of parameters that the name of a model states, as in ``Qwen2.5-3B-Instruct``; None without one."""
    found = _NAMED.search(name.rpartition("/")[2].replace("-", " ").replace("_", " "))
    return ModelShape(parameters=int(float(found[1]) * 1e9)) if found else None


def _pickled(folder: Path, config: dict[str, Any]) -> int:
    """The number of parameters in files of torch, from their size."""
    size = sum(path.stat().st_size for path in folder.glob("pytorch_model*.bin"))
    if not size:
        raise UserError("the folder has no weights", where=str(folder), fix="copy the weights there")
    return size // _BYTES.get(str(config.get("dtype") or config.get("torch_dtype")), 2)
