"""Keys whose meaning depends on the model: folders of images, and the adapter of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.adapter import base_name, check_base
from rlcore.models.folder import BUILTIN
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words

_VISION = ("vision_config", "visual")
"""Keys in ``config.json`` of a model that reads images."""


def _images(value: Any, words: Words) -> None:
    """Refuse images beside a model that cannot read them: its answers would be guesses."""
    model = words.get("model_path")
    if isinstance(model, str) and _reads_text_only(model):
        raise Refused(f"the model {model} does not read images: give a vision-language model, or remove the key")


def _reads_text_only(model: str) -> bool:
    """Whether the model is known to have no vision layers; False for a model on the hub."""
    if model.startswith(BUILTIN):
        return True
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config and not any(key in config for key in _VISION)


IMAGES = Meaning(ours=None, why="images are not supported; only the text of the rows is used", read=_images)


def base_or_model(value: Any, words: Words) -> Any:
    """The model, unless an adapter on it is evaluated; that adapter must have been trained on it."""
    folder = words.get("lora_adapter_path")
    if not isinstance(folder, str):
        return value
    try:
        named = base_name(Path(folder).expanduser())
        same = named is not None and (named == value or Path(named).expanduser().resolve() == Path(value).resolve())
        if (Path(value) / "config.json").is_file() and check_base(Path(folder).expanduser(), Path(value)):
            same = True
    except UserError as error:
        raise Refused(str(error), of="lora_adapter_path") from None
    if not same:
        reason = f"the adapter was trained on {named}: give that base, or merge: rlcore merge {folder} --base MODEL"
        raise Refused(f"{reason} --out FOLDER, and model_path: FOLDER")
    return Several({})


def adapter(value: Any, words: Words) -> Any:
    """The folder of the adapter, which names its base."""
    if not isinstance(value, str):
        raise Refused("must be the folder of an adapter")
    try:
        base_name(Path(value).expanduser())
    except UserError as error:
        raise Refused(str(error), of="lora_adapter_path") from None
    return value


__all__ = ["IMAGES", "adapter", "base_or_model"]
