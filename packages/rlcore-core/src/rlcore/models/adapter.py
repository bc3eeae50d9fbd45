"""Read the settings of an adapter folder, and check its base model, without loading weights.

The format is that of peft: ``adapter_config.json`` and ``adapter_model.safetensors``. rlcore stores a fingerprint of
the base model in the metadata of the weights, because an adapter on a different base silently gives wrong results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.models.config_file import MAX_BYTES
from rlcore.models.fingerprint import fingerprint_of_folder, safetensors_header

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FINGERPRINT = "rlcore_base_fingerprint"
"""Metadata key for the fingerprint of the base model."""
QUANTIZATION = "rlcore_base_quantization"
"""Metadata key for the quantization of the base model; without it, the base was not quantised."""


def is_adapter(folder: Path) -> bool:
    """Whether a folder contains an adapter rather than a complete model."""
    return (folder / SETTINGS).is_file()


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a LoRA adapter, in the format of peft.

    Raises:
        UserError: the folder is not a LoRA adapter, or it is incomplete.
    """
    path = folder / SETTINGS
    try:
        settings = read_json(path, limit=MAX_BYTES)
    except (OSError, ValueError) as error:
        found = str(error) if folder.is_dir() else "no such folder"
        raise UserError(
            "the folder is not an adapter", found=found, where=str(folder), fix=f"give a folder with {SETTINGS}"
        ) from None
    kind = settings.get("peft_type") if isinstance(settings, dict) else type(settings).__name__
    if kind != "LORA":
        raise UserError("only LoRA adapters are supported", found=f"peft_type {kind}", where=str(path))
    if not (folder / WEIGHTS).is_file():
        raise UserError("the adapter has no weights", found=f"no {WEIGHTS}", where=str(folder))
    return dict(settings)


def base_quantization(folder: Path) -> str:
    """The ``model.quantization`` that an adapter was trained with."""
    header, _ = safetensors_header(folder / WEIGHTS)
    return str((header.get("__metadata__") or {}).get(QUANTIZATION, "none"))


def check_base(folder: Path, base: Path) -> bool:
    """Check that the adapter was trained on ``base``. False when the adapter has no fingerprint.

    Raises:
        UserError: it was trained on a different base model.
    """
    header, _ = safetensors_header(folder / WEIGHTS)
    expected = (header.get("__metadata__") or {}).get(FINGERPRINT) or read_settings(folder).get(FINGERPRINT)
    if expected is None:
        return False
    found = fingerprint_of_folder(base)
    if found != expected:
        raise UserError(
            "the adapter was trained on another base model",
            found=f"fingerprint of the base {found}, expected by the adapter {expected}",
            where=f"{folder}, base {base}",
            fix="give the base that it was trained on: after fine-tuning and merging, this is the merged model",
        )
    return True


def base_name(folder: Path) -> str | None:
    """The folder or hub id of the base model in the adapter's settings."""
    named = read_settings(folder).get("base_model_name_or_path")
    return named if isinstance(named, str) and named else None
