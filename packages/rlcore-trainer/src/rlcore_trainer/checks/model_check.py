"""Check the kind of the model before anything loads. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.checks import Finding, failure, warning
from rlcore.errors import UserError
from rlcore.models.config_file import CONFIG, read_config
from rlcore.models.folder import BUILTIN, local_folder
from rlcore.models.vision_language import sees_images
from rlcore_models.lora_config import lora_table

from rlcore_trainer.checks.resume_check import configuration_before

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def check(run: RunSession) -> Iterator[Finding]:
    """Find settings of the model that a resumed run cannot change, or that have no effect.

    Raises:
        UserError: the model is a vision-language model of an unsupported family.
    """
    now, path = run.config.model.vision_tower, run.config.model.path
    if run.resume_from is not None and not lora_table(run).wanted:
        before = configuration_before(run.resume_from).get("model", {}).get("vision_tower")
        if before not in (None, now):
            reason = f"the run started with {before!r}, and a resumed run cannot change which weights it trains"
            fix = f"model.vision_tower={before}, or start a new run with model={run.resume_from}"
            yield failure("model.vision_tower", reason, fix)
    folder = None if path.startswith(BUILTIN) else _local(path)
    if folder is None or not (folder / CONFIG).is_file():
        return  # reported elsewhere
    if not sees_images(read_config(folder), folder) and now == "frozen":
        yield warning("model.vision_tower=frozen has no effect, because the model has no vision tower")


def _local(path: str) -> Path | None:
    try:
        return local_folder(path)
    except UserError:
        return None
