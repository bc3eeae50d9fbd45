"""Write the adapter of a checkpoint as a folder that peft can load."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge import companions, provenance, writing
from rlcore_merge.checkpoint import Adapter, Checkpoint
from rlcore_merge.merged import Merged
from rlcore_merge.output_folder import atomic_folder, check_new, check_room


def export_adapter(checkpoint: Checkpoint, out: Path, *, dtype: str, started: float, base: Path | None) -> Merged:
    """Write ``adapter_config.json``, with the α of the training, and ``adapter_model.safetensors``.

    Raises:
        UserError: the checkpoint has no adapter, or the output cannot be written.
    """
    adapter = checkpoint.adapter
    if adapter is None:
        raise UserError(
            "the checkpoint has no adapter",
            found=f"a full model ({checkpoint.layout})",
            where=str(checkpoint.folder),
            fix="omit --adapter",
        )
    check_new(out)
    tensors = {f"base_model.model.{name}": tensor for name, tensor in adapter.tensors.items()}
    plan = writing.plan(
        tensors, dtype=dtype, buffers=frozenset(), limit=2**63, stem="adapter_model", metadata=adapter.about_base
    )
    check_room(out, plan.size)
    with atomic_folder(out) as partial:
        companions.copy([folder for folder in checkpoint.companions if folder != base], partial)
        (partial / "config.json").unlink(missing_ok=True)
        settings = _settings(adapter, base)
        (partial / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        writing.write(plan, partial, threads=1, on_written=lambda _: None)
        record = provenance.record(
            checkpoint, None, dtype=dtype, tensors=len(tensors), size=plan.size, more={"adapter": settings}
        )
        (partial / provenance.FILE).write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")
        files = tuple(sorted(path.name for path in partial.iterdir()))
    return Merged(
        folder=out,
        layout=checkpoint.layout,
        tensors=len(tensors),
        bytes=plan.size,
        seconds=time.perf_counter() - started,
        files=files,
        notes=tuple(checkpoint.notes),
    )


def _settings(adapter: Adapter, base: Path | None) -> dict[str, Any]:
    names = [name.split(".") for name in adapter.tensors]
    modules = {
        parts[index - 1] for parts in names for index, part in enumerate(parts) if index and part.startswith("lora_")
    }
    saved = {parts[-2] for parts in names if not any(part.startswith("lora_") for part in parts) and len(parts) > 1}
    settings = dict(adapter.settings)
    settings.setdefault("peft_type", "LORA")
    task = str(settings.get("task_type") or "CAUSAL_LM").removeprefix("TaskType.")
    settings["task_type"] = "CAUSAL_LM" if task == "None" else task
    settings.setdefault("target_modules", sorted(modules))
    settings.setdefault("modules_to_save", sorted(saved) or None)
    settings.setdefault("use_dora", any("lora_magnitude_vector" in parts for parts in names))
    settings.setdefault("base_model_name_or_path", None if base is None else str(base))
    settings.setdefault("inference_mode", True)
    settings.setdefault("bias", "none")
    return settings
