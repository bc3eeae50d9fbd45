"""Check that the layers named in ``[lora]`` exist. Does not import torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlcore.errors import UserError, did_you_mean
from rlcore.models.fingerprint import safetensors_header

from rlcore_models.lora_config import ALL, LoraTable

USUAL = "model.layers.0.self_attn.q_proj.weight"
"""A tensor whose presence shows that the file uses the names of the model's layers."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model, by their full paths."""

    all: Collection[str]
    linear: Collection[str]

    @property
    def linear_names(self) -> list[str]:
        """The names of the linear layers, without duplicates."""
        return sorted({path.rpartition(".")[2] for path in self.linear})


def layers_of_folder(folder: Path) -> Layers | None:
    """Return the layers named in the headers of the weights; None if the names may differ from the model's."""
    shapes: dict[str, list[int]] = {}
    try:
        for path in folder.glob("*.safetensors"):
            header, _ = safetensors_header(path)
            shapes |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    except (UserError, KeyError, TypeError):
        return None  # loading reports the damage
    if USUAL not in shapes:
        return None
    paths = {"lm_head"}  # has no tensor if the embeddings are tied
    for name in shapes:
        parts = name.split(".")
        paths |= {".".join(parts[:length]) for length in range(1, len(parts))}
    linear = [name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) == 2 and "embed" not in name]
    return Layers(paths, linear)


def wrong_names(table: LoraTable, layers: Layers) -> Iterator[tuple[str, str, str]]:
    """Yield names that match no layer, which peft would ignore silently, as key, name and fix.

    Raises:
        UserError: ``targets`` is not a valid regular expression.
    """
    for key, names in (("targets", table.targets), ("modules_to_save", table.modules_to_save)):
        for wanted in [names] if isinstance(names, str) else names:
            if isinstance(names, str):
                found = wanted.lower() == ALL or any(_matches(wanted, path) for path in layers.all)
            else:
                found = any(path == wanted or path.endswith(f".{wanted}") for path in layers.all)
            if not found:
                near = did_you_mean(wanted, sorted({path.rpartition(".")[2] for path in layers.all}))
                yield key, wanted, near or f"its linear layers are {', '.join(layers.linear_names)}"


def _matches(pattern: str, path: str) -> bool:
    try:
        return re.fullmatch(pattern, path) is not None
    except re.error as error:
        raise UserError(
            "lora.targets must be all-linear, a list of names, or one regular expression",
            found=f"{pattern!r}: {error}",
            where="lora.targets",
            fix='lora.targets=["q_proj","v_proj"]',
        ) from error
