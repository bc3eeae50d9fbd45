"""The policy that a run starts from: all of a model, or an adapter on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rlcore.adapter_folder import base_quantization, is_adapter
from rlcore.errors import UserError
from transformers import PreTrainedModel

from rlcore_trainer.lora_config import lora_table
from rlcore_trainer.model import load_policy

if TYPE_CHECKING:
    from rlcore.run import Run


def starting_policy(run: Run, folder: Path, *, device: torch.device, dropout: bool = False) -> PreTrainedModel:
    """The model of ``folder``, with the adapter that ``[lora]`` asks for, as it was in the checkpoint to go on from.

    Raises:
        UserError: as `load_policy` and `rlcore_trainer.lora.attach`, or the checkpoint is not of this kind.
    """
    table = lora_table(run)
    checkpoint = run.resume_from / "model" if run.resume_from is not None else None
    if checkpoint is not None and is_adapter(checkpoint) != table.wanted:
        raise UserError(
            "a run goes on with what it has trained until now",
            found=f"{'an adapter' if is_adapter(checkpoint) else 'all weights'} in {checkpoint}",
            where=run.resolved.origin(("lora", "rank")),
            mend="lora.rank as it was, or a new run with model=FOLDER",
        )
    if not table.wanted:
        return load_policy(checkpoint or folder, dtype=run.config.model.dtype, device=device)
    from rlcore_trainer.lora import attach

    adapter = checkpoint or (Path(table.adapter).expanduser() if table.adapter is not None else None)
    asked = run.config.model
    if checkpoint is not None and (before := base_quantization(checkpoint)) != asked.quantization:
        raise UserError(
            "a run goes on with its base as it was held",
            found=f"model.quantization={asked.quantization}",
            where=run.resolved.origin(("model", "quantization")),
            mend=f"model.quantization={before}, or a new run with lora.adapter={checkpoint}",
        )
    model = load_policy(folder, dtype=asked.dtype, device=device, quantization=asked.quantization)
    attach(model, table, base=folder, seed=run.config.seed, adapter=adapter, dropout=dropout)
    return model
