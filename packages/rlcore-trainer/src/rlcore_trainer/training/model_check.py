"""Check the kind of the model before anything loads. Does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import UserError
from rlcore.images.families import sees_images
from rlcore.models.config_file import CONFIG, read_config
from rlcore.models.folder import BUILTIN, local_folder

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def notes(run: RunSession) -> list[str]:
    """Return notes on valid settings that may be unexpected, one sentence each.

    Raises:
        UserError: the model is a vision-language model of an unsupported family.
    """
    path = run.config.model.path
    if path.startswith(BUILTIN):
        return []
    folder = _local(path)
    if folder is None or not (folder / CONFIG).is_file():
        return []  # reported elsewhere
    if not sees_images(read_config(folder), folder) and run.config.model.vision_tower == "frozen":
        return ["model.vision_tower=frozen has no effect, because the model has no vision tower"]
    return []


def _local(path: str) -> Path | None:
    try:
        return local_folder(path)
    except UserError:
        return None


__all__ = ["notes"]
