"""Checks of a run with images: the model reads them, and the engine accepts as many as the tasks have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlcore.abilities import ImagesConfig
from rlcore.errors import DataError
from rlcore.images.fitting import SETTINGS
from rlcore.models.adapter import is_adapter
from rlcore.models.folder import local_base, local_folder
from rlcore.models.vision_language import VisionLanguageModel, require_images
from rlcore.specs import EngineSpec, EnvironmentSpec
from rlcore.wording import counted

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def check_images(run: RunSession, splits: Sequence[str]) -> list[str]:
    """Check the model and the engine of a run whose tasks or environments have images.

    Returns:
        A note on the images of a vision-language model.

    Raises:
        UserError: the model reads no images, or its image processor is missing or wrong.
        DataError: a task has more images than the engine accepts.
    """
    engine = run.registry.spec("engine", run.config.rollout.engine)
    if isinstance(engine, EngineSpec) and engine.speaks == "messages":
        return []
    tasks = (task for name in splits for task in run.dataset.tasks(name))
    most = max(((sum(len(message.images) for message in task.messages), task.id) for task in tasks), default=(0, ""))
    _check_number(run, *most)
    folder = local_folder(run.config.model.path)
    if folder is not None and is_adapter(folder):
        folder = local_base(folder)
    if folder is None:
        return []
    environments = (run.registry.spec("environment", one.id) for one in run.environments)
    seen = any(isinstance(spec, EnvironmentSpec) and "image" in spec.modalities for spec in environments)
    needed = seen or most[0]
    if not needed and not (folder / SETTINGS).is_file():
        return []  # it is used as a text model
    model = require_images(folder) if needed else VisionLanguageModel.of_folder(folder)
    processor = None if model is None else run.image_processor(folder)
    if model is None or processor is None:
        return []
    side = processor.token_side**2
    least, largest = -(-processor.min_pixels // side), processor.max_pixels // side
    return [f"the model is a {model.family}, which sees an image as {least:,} to {largest:,} tokens (model.images)"]


def _check_number(run: RunSession, count: int, task: str) -> None:
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


__all__ = ["check_images"]
