"""Check the kind of the model before anything loads. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.config.messages import Problem
from rlcore.errors import UserError
from rlcore.models.config_file import CONFIG, read_config
from rlcore.models.folder import BUILTIN, local_folder
from rlcore.models.vision_language import sees_images
from rlcore_models.lora_config import lora_table

from rlcore_trainer.checks.resume_check import configuration_before

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def problems(run: RunSession) -> Iterator[Problem]:
    """Yield settings of the model that a resumed run cannot change."""
    if run.resume_from is None or lora_table(run).wanted:
        return
    before = configuration_before(run.resume_from).get("model", {}).get("vision_tower")
    now = run.config.model.vision_tower
    if before not in (None, now):
        origin = run.resolved.origin(("model", "vision_tower"))
        reason = f"the run started with {before!r}, and a resumed run cannot change which weights it trains"
        reason += f"\nfix: model.vision_tower={before}, or start a new run with model={run.resume_from}"
        yield Problem(kind="bad value", path="model.vision_tower", value=now, origin=origin, reason=reason)


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


__all__ = ["notes", "problems"]
