"""Write the adapter of a checkpoint as a folder that peft can load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge import other_files, provenance, writing
from rlcore_merge.checkpoint import Adapter, Checkpoint
from rlcore_merge.completeness import VISION
from rlcore_merge.lora import PART
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
        other_files.copy([folder for folder in checkpoint.companions if folder != base], partial)
        (partial / "config.json").unlink(missing_ok=True)
        settings = _settings(checkpoint, adapter, base)
        (partial / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        notes = [*checkpoint.notes, *writing.write(plan, partial, threads=1, on_written=lambda _: None)]
        record = provenance.record(
            checkpoint,
            None,
            dtype=dtype,
            tensors=len(tensors),
            size=plan.size,
            more={"adapter": settings, "notes": notes},
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
        notes=tuple(notes),
    )


def _settings(checkpoint: Checkpoint, adapter: Adapter, base: Path | None) -> dict[str, Any]:
    adapted = {match["module"] for name in adapter.tensors if (match := PART.match(name))}
    other = {name.rpartition(".")[0] for name in adapter.tensors if not PART.match(name)}
    settings = dict(adapter.settings)
    settings.setdefault("peft_type", "LORA")
    task = str(settings.get("task_type") or "CAUSAL_LM").removeprefix("TaskType.")
    settings["task_type"] = "CAUSAL_LM" if task == "None" else task
    settings.setdefault("target_modules", _short_names(adapted, checkpoint.tensors))
    settings.setdefault("modules_to_save", sorted({name.rpartition(".")[2] for name in other - adapted}) or None)
    settings.setdefault("use_dora", any("lora_magnitude_vector" in name for name in adapter.tensors))
    settings.setdefault("base_model_name_or_path", None if base is None else str(base))
    settings.setdefault("inference_mode", True)
    settings.setdefault("bias", "lora_only" if other & adapted else "none")
    return settings


def _short_names(adapted: set[str], tensors: Iterable[str]) -> list[str]:
    """Names that select exactly the adapted modules: the last part of their path, or the path if others share it.

    Modules of the model are known from the names of all tensors. If the checkpoint contains only the adapter, those of
    a vision tower are named in full, because it may have other layers with the same names.
    """
    tensors = list(tensors)
    modules = {path for name in [*tensors, *(f"{module}.weight" for module in adapted)] for path in _parents(name)}
    shared = {path.rpartition(".")[2] for path in modules - adapted}
    if not tensors:
        shared |= {module.rpartition(".")[2] for module in adapted if VISION.search(module)}
    short = {module: module.rpartition(".")[2] for module in adapted}
    return sorted({module if name in shared or name.isdecimal() else name for module, name in short.items()})


def _parents(name: str) -> Iterator[str]:
    """The paths of the modules that contain a tensor."""
    while name := name.rpartition(".")[0]:
        yield name
