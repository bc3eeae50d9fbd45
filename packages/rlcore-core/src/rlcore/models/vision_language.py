"""Vision-language models: recognised from their folder, with checks of what image input needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from rlcore.images.fitting import FAMILIES, SETTINGS
from rlcore.models.config_file import CONFIG, read_config

SIZES = {"patch_size": "patch_size", "merge_size": "spatial_merge_size", "temporal_patch_size": "temporal_patch_size"}
"""Sizes of an image processor, and their names in ``vision_config``."""
CHOOSE = "choose a vision-language model, such as Qwen/Qwen2.5-VL-3B-Instruct or builtin:tiny-qwen2.5-vl"
"""How to fix a model that sees no images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguageModel:
    """What a folder says about the images of its model."""

    family: str
    """``Qwen2-VL``, ``Qwen2.5-VL`` or ``Qwen3-VL``."""
    processor: ImageProcessor
    placeholder: int
    """Id of the token that represents images."""

    @classmethod
    def of_folder(cls, folder: Path) -> VisionLanguageModel | None:
        """Read the folder of a model; None for a model whose images are not supported (`require_images`).

        Raises:
            UserError: its processor is missing or made for another model.
        """
        config, path = read_config(folder), folder / CONFIG
        kind = config.get("model_type")
        if not is_vision_language(config) or kind not in FAMILIES:
            return None
        processor = ImageProcessor.of_folder(folder)
        if processor is None:
            raise UserError(
                f"the {FAMILIES[kind]} model has no image processor",
                found=f"no {SETTINGS}",
                where=str(folder),
                fix="save it there: AutoProcessor.from_pretrained(MODEL).save_pretrained(FOLDER)",
            )
        _check_sizes(processor, config["vision_config"], folder)
        placeholder = config.get("image_token_id")
        if type(placeholder) is not int or placeholder < 0:
            raise UserError(
                f"the model's {CONFIG} needs the id of the image token as image_token_id",
                found=repr(placeholder)[:80],
                where=str(path),
                fix="restore the file of the model, or save the model again",
            )
        return cls(family=FAMILIES[kind], processor=processor, placeholder=placeholder)


def require_images(folder: Path, *, where: str | None = None) -> VisionLanguageModel:
    """Read the folder of a model that must accept images.

    Args:
        folder: the model folder
        where: the origin of the model's path, for the error; None for the file in the folder

    Raises:
        UserError: it is a text model or of an unsupported family, or as `VisionLanguageModel.of_folder`.
    """
    model = VisionLanguageModel.of_folder(folder)
    if model is None:
        config = read_config(folder)
        kind = "vision-language" if is_vision_language(config) else "text"
        raise UserError(
            f"images need a model of the families {', '.join(FAMILIES.values())}",
            found=f"a {kind} model, model_type {str(config.get('model_type'))[:80]!r}",
            where=where or str(folder / CONFIG),
            fix=f"{CHOOSE}, or tasks without images",
        )
    return model


def is_vision_language(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is of a model with an image encoder."""
    return isinstance(config.get("vision_config"), dict)


def sees_images(config: Mapping[str, Any], folder: Path) -> bool:
    """Return whether a model is a vision-language model, which must be of a supported family.

    Args:
        config: the contents of ``config.json``
        folder: its folder, for the error

    Raises:
        UserError: it is one of an unsupported family.
    """
    if not is_vision_language(config):
        return False
    kind, listed = str(config.get("model_type")), config.get("architectures")
    if kind not in FAMILIES:
        name = listed[0] if isinstance(listed, list) and listed else kind
        raise UserError(
            f"a vision-language model must be of the families {', '.join(FAMILIES.values())}",
            found=str(name)[:80],
            where=str(folder / CONFIG),
            fix="choose a model of these families, or a language model without images",
        )
    return True


def _check_sizes(processor: ImageProcessor, vision: Mapping[str, Any], folder: Path) -> None:
    for name, its in SIZES.items():
        expected = vision.get(its)
        if expected is not None and expected != getattr(processor, name):
            raise UserError(
                "the image processor belongs to another model",
                found=f"{name} {getattr(processor, name)}, and {its} {str(expected)[:20]} in {CONFIG}",
                where=str(folder / SETTINGS),
                fix=f"restore {SETTINGS} of this model",
            )


__all__ = ["FAMILIES"]
