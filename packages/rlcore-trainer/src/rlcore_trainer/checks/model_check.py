"""Check the kind of the model before anything loads. Does not import torch."""

from __future__ import annotations

import math
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
from rlcore_trainer.distributed.config import DataParallelConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def check(run: RunSession) -> Iterator[Finding]:
    """Find settings of the model that a resumed run cannot change, that have no effect, or that do not fit it.

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
    config, options = read_config(folder), run.options("strategy")
    team = options.sequence_parallel if isinstance(options, DataParallelConfig) else 1
    heads = {**config, **(config.get("text_config") or {})}.get("num_attention_heads") or team
    if heads % team:
        reason = f"it must divide the {heads} heads of the model's attention"
        yield failure("strategy.sequence_parallel", reason, f"strategy.sequence_parallel={math.gcd(heads, team)}")
    if not sees_images(config, folder) and now == "frozen":
        yield warning("model.vision_tower=frozen has no effect, because the model has no vision tower")


def _local(path: str) -> Path | None:
    try:
        return local_folder(path)
    except UserError:
        return None
