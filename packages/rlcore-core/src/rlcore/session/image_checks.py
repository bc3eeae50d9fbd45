"""Checks of a run with images: the parts of the model fit together, and the engine accepts the images of each task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.abilities import ImagesConfig
from rlcore.console.wording import counted
from rlcore.contracts import ChatFormat, RendersImages
from rlcore.errors import DataError, UserError
from rlcore.images.fitting import SETTINGS
from rlcore.models.adapter import is_adapter
from rlcore.models.config_file import CONFIG
from rlcore.models.folder import local_base, local_folder
from rlcore.models.vision_language import VisionLanguageModel, require_images
from rlcore.specs import EngineSpec, EnvironmentSpec

if TYPE_CHECKING:
    from rlcore.session.components import RunComponents


def check_images(run: RunComponents, splits: Sequence[str]) -> list[str]:
    """Check the model and the engine of a run whose tasks or environments have images.

    Returns:
        A note on the images of a vision-language model.

    Raises:
        UserError: the model reads no images, or its image processor is missing or wrong.
        DataError: a task has more images than the engine accepts.
    """
    if not uses_tokens(run):
        return []
    tasks = (task for name in splits for task in run.dataset.tasks(name))
    most = max(((sum(len(message.images) for message in task.messages), task.id) for task in tasks), default=(0, ""))
    _check_number(run, *most)
    folder = local_folder(run.config.model.path)
    if folder is not None and is_adapter(folder):
        folder = local_base(folder)
    if folder is None:
        return []
    needed = most[0] or has_image_environment(run)
    if not needed and not (folder / SETTINGS).is_file():
        return []  # it is used as a text model
    where = run.resolved.origin(("model", "path"))
    model = require_images(folder, where=where) if needed else VisionLanguageModel.of_folder(folder)
    processor = None if model is None else run.image_processor(folder)
    if model is None or processor is None:
        return []
    side = processor.token_side**2
    least, largest = -(-processor.min_pixels // side), processor.max_pixels // side
    return [f"the model is a {model.family}, which sees an image as {least:,} to {largest:,} tokens (model.images)"]


def uses_tokens(run: RunComponents) -> bool:
    """Whether images are rendered here, and not by a server."""
    engine = run.registry.spec("engine", run.config.rollout.engine)
    return not (isinstance(engine, EngineSpec) and engine.speaks == "messages")


def has_image_environment(run: RunComponents) -> bool:
    """Whether an environment states images among its modalities."""
    specs = (run.registry.spec("environment", one.id) for one in run.environments)
    return any(
        isinstance(spec, EnvironmentSpec) and spec.action == "chat" and "image" in spec.modalities for spec in specs
    )


def check_image_input(folder: Path, chat_format: ChatFormat, *, named: str, where: str) -> None:
    """Check that model, image processor and chat format of a folder fit together, before the weights are loaded.

    Args:
        folder: the model folder
        chat_format: the chat format of the folder
        named: the chat format, for messages
        where: the origin of the model's path

    Raises:
        UserError: the model cannot see images, or a part is missing or belongs to another model.
    """
    model = require_images(folder, where=where)
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


def _check_number(run: RunComponents, count: int, task: str) -> None:
    options = run.options("engine")
    if not isinstance(options, ImagesConfig) or count <= options.max_images:
        return
    key = f"rollout.{run.config.rollout.engine}.max_images"
    raise DataError(
        f"the engine accepts {counted(options.max_images, 'image')} in a prompt",
        found=f"task {task!r} with {count}",
        where=run.resolved.origin(tuple(key.split("."))),
        fix=f"set {key}={count} or higher, or use tasks with fewer images",
    )


__all__ = ["check_image_input", "check_images", "has_image_environment", "uses_tokens"]
