"""What can be said of an adapter's folder without loading it: its settings, and whether its base is the right one.

The form is peft's: ``adapter_config.json`` and ``adapter_model.safetensors``. rlcore writes into the metadata of the
weights which base they belong to, as an adapter on another base computes nonsense without an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.fingerprint import fingerprint_of_folder, safetensors_header

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FINGERPRINT = "rlcore_base_fingerprint"
"""Key of the metadata under which the weights say the fingerprint of their base."""
QUANTIZATION = "rlcore_base_quantization"
"""Key of the metadata under which they say how their base was held; without it, whole."""


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter instead of a whole model."""
    return (folder / SETTINGS).is_file()


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of an adapter of low rank, in peft's words.

    Raises:
        UserError: there is no such adapter, or not all of it.
    """
    path = folder / SETTINGS
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found = str(error) if folder.is_dir() else "no such folder"
        raise UserError(
            "there is no adapter", found=found, where=str(folder), mend=f"a folder with {SETTINGS}"
        ) from None
    kind = settings.get("peft_type") if isinstance(settings, dict) else type(settings).__name__
    if kind != "LORA":
        raise UserError("the adapter is of another kind than LoRA", found=f"peft_type {kind}", where=str(path))
    if not (folder / WEIGHTS).is_file():
        raise UserError("the adapter has no weights", found=f"no {WEIGHTS}", where=str(folder))
    return dict(settings)


def base_quantization(folder: Path) -> str:
    """The ``model.quantization`` that an adapter was trained with."""
    header, _ = safetensors_header(folder / WEIGHTS)
    return str((header.get("__metadata__") or {}).get(QUANTIZATION, "none"))


def check_base(folder: Path, base: Path) -> bool:
    """Whether the adapter says which base it was trained on; it is this one then.

    Raises:
        UserError: it is another one.
    """
    header, _ = safetensors_header(folder / WEIGHTS)
    said = (header.get("__metadata__") or {}).get(FINGERPRINT) or read_settings(folder).get(FINGERPRINT)
    if said is None:
        return False
    found = fingerprint_of_folder(base)
    if found != said:
        raise UserError(
            "the adapter was trained on another base",
            found=f"the base's fingerprint is {found}, the adapter's says {said}",
            where=f"{folder}, base {base}",
            mend="give the very base that it was trained on: after fine-tuning and merging that is the merged model",
        )
    return True


def base_name(folder: Path) -> str | None:
    """The folder or hub id that an adapter names as its base."""
    named = read_settings(folder).get("base_model_name_or_path")
    return named if isinstance(named, str) and named else None


__all__ = ["FINGERPRINT", "SETTINGS", "WEIGHTS", "base_name", "check_base", "is_adapter", "read_settings"]
