"""Keys whose meaning depends on the model: folders of pictures, and the adapter of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.adapter import base_name, check_base
from rlcore.models.folder import BUILTIN
from rlcore_compat.tables import Refused, Several, Words

_VISION = ("vision_config", "visual")
"""Keys in ``config.json`` of a model that reads images."""


def pictures(value: Any, words: Words) -> Any:
    """A folder of pictures, refused beside a model that cannot read them: its answers would be guesses."""
    model = words.get("model_path")
    if isinstance(model, str) and _reads_text_only(model):
        raise Refused(f"the model {model} does not read images: give a vision-language model, or remove the key")
    return value


def tokenizer(value: Any, words: Words) -> None:
    """The folder of the tokenizer, which must be that of the model."""
    if value != words.get("model_path"):
        raise Refused("the tokenizer must be in the model folder: copy its files there, and set this key to model_path")


def conversations(value: Any, words: Words) -> Any:
    """Training conversations: with pictures if there is a folder of them."""
    return Several({"data.train": value} | ({} if words.get("image_dir") is not None else {"data.id": "chat"}))


def _reads_text_only(model: str) -> bool:
    """Whether the model is known to have no vision layers; False for a model on the hub."""
    if model.startswith(BUILTIN):
        return "vl" not in model
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config and not any(key in config for key in _VISION)


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
    return Several()


def adapter(value: Any, words: Words) -> Any:
    """The folder of the adapter, which names its base."""
    if not isinstance(value, str):
        raise Refused("must be the folder of an adapter")
    try:
        base_name(Path(value).expanduser())
    except UserError as error:
        raise Refused(str(error), of="lora_adapter_path") from None
    return value
