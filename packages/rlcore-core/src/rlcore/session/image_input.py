"""Checks that a model can see the images of an environment, before its weights are loaded."""

from __future__ import annotations

from pathlib import Path

from rlcore.contracts import ChatFormat, RendersImages
from rlcore.errors import UserError
from rlcore.models.config_file import CONFIG
from rlcore.models.vision_language import require_images


def check_image_input(folder: Path, chat_format: ChatFormat, *, named: str, where: str) -> None:
    """Check that model, image processor and chat format of a folder fit together.

    Args:
        folder: the model folder
        chat_format: the chat format of the folder
        named: the chat format, for messages
        where: the origin of the model's path

    Raises:
        UserError: the model cannot see images, or a part is missing or belongs to another model.
    """
    model = require_images(folder)
    if not isinstance(chat_format, RendersImages) or chat_format.image_processor is None:
        raise UserError(
            f"{named} cannot show images with this model folder",
            found="no image processor, no tokens for images, or a chat format for text",
            where=where,
            fix="use a model of Qwen2-VL, Qwen2.5-VL or Qwen3-VL with its image processor and model.chat_format=auto",
        )
    if chat_format.placeholder_token_ids[0] != model.placeholder:
        raise UserError(
            "the tokenizer belongs to another model",
            found=f"images are the token {chat_format.placeholder_token_ids[0]}, and {model.placeholder} in {CONFIG}",
            where=str(folder),
            fix="restore the tokenizer of this model",
        )
