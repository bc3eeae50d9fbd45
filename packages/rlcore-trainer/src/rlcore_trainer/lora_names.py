"""Whether the layers that ``[lora]`` names are there. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlcore.errors import UserError, did_you_mean
from rlcore.fingerprint import safetensors_header

from rlcore_trainer.lora_config import ALL, LoraTable

USUAL = "model.layers.0.self_attn.q_proj.weight"
"""A tensor of files whose names are those of the model's layers."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model, by their whole paths."""

    all: Collection[str]
    linear: Collection[str]

    @property
    def linear_names(self) -> list[str]:
        """What the linear ones are called, each once."""
        return sorted({path.rpartition(".")[2] for path in self.linear})


def layers_of_folder(folder: Path) -> Layers | None:
    """What the names in the weights' headers say; None where they may be others than the model's."""
    shapes: dict[str, list[int]] = {}
    try:
        for path in folder.glob("*.safetensors"):
            header, _ = safetensors_header(path)
            shapes |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    except (UserError, KeyError, TypeError):
        return None  # loading tells what is damaged
    if USUAL not in shapes:
        return None
    paths = {"lm_head"}  # no tensor where it is tied
    for name in shapes:
        parts = name.split(".")
        paths |= {".".join(parts[:length]) for length in range(1, len(parts))}
    linear = [name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) == 2 and "embed" not in name]
    return Layers(paths, linear)


def wrong_names(table: LoraTable, layers: Layers) -> Iterator[tuple[str, str, str]]:
    """The names of which no layer is called, which peft would leave out without a word: key, name, what mends it.

    Raises:
        UserError: ``targets`` is no regular expression.
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
            "lora.targets is all-linear, a list of names, or one regular expression",
            found=f"{pattern!r}: {error}",
            where="lora.targets",
            mend='lora.targets=["q_proj","v_proj"]',
        ) from error
