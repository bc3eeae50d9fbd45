"""The policy that a run starts from: all of a model, or an adapter on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from rlcore_trainer.lora_config import lora_table
from rlcore_trainer.model import load_policy

if TYPE_CHECKING:
    from rlcore.run import Run


def starting_policy(run: Run, folder: Path, *, device: torch.device, dropout: bool = False) -> PreTrainedModel:
    """The model of ``folder``, with the adapter that ``[lora]`` asks for, as it was in the checkpoint to go on from.

    That the checkpoint is of this kind has been found by `rlcore_trainer.lora_check`.

    Raises:
        UserError: as `load_policy` and `rlcore_trainer.lora.attach`.
    """
    table = lora_table(run)
    checkpoint = run.resume_from / "model" if run.resume_from is not None else None
    if not table.wanted:
        return load_policy(checkpoint or folder, dtype=run.config.model.dtype, device=device)
    from rlcore_trainer.lora import attach

    adapter = checkpoint or (Path(table.adapter).expanduser() if table.adapter is not None else None)
    asked = run.config.model
    model = load_policy(folder, dtype=asked.dtype, device=device, quantization=asked.quantization)
    attach(model, table, base=folder, seed=run.config.seed, adapter=adapter, dropout=dropout)
    return model
