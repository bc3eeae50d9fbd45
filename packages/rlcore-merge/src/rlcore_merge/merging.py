"""Merge a checkpoint of any layout into one Hugging Face folder or one adapter folder."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.models.adapter import QUANTIZATION
from rlcore.models.folder import check_checksums

from rlcore_merge.checkpoint import Checkpoint, Request
from rlcore_merge.layouts import Layouts
from rlcore_merge.merged import Merged
from rlcore_merge.output_folder import atomic_folder, check_new, check_room

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor

DTYPES = ("keep", "bf16", "fp16", "fp32")

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

SPARE = 64 << 20
"""Disk space required in addition to the weights, in bytes: tokenizers, the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A checkpoint with its adapter applied: the tensors to write, not yet computed."""

    checkpoint: Checkpoint
    base: Checkpoint | None
    tensors: dict[str, Tensor]
    buffers: frozenset[str]
    companions: list[Path]
    notes: list[str]
    changes: dict[str, Any]


def merge(
    source: str | Path,
    out: str | Path,
    *,
    dtype: str = "keep",
    max_shard_size: str | int = "5GB",
    base: str | Path | None = None,
    adapter: bool = False,
    lora_alpha: float | None = None,
    allow_zero_delta: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    layouts: Layouts | None = None,
) -> Merged:
    """Write a checkpoint as one folder that `from_pretrained` can load.

    Args:
        source: a folder of any layout, a folder that contains one, or a GGUF file
        out: output folder; it must not exist or must be empty, and its files appear only when all are complete
        dtype: ``keep``, ``bf16``, ``fp16`` or ``fp32``; known buffers and integers keep their dtype
        max_shard_size: maximum size of one file, such as ``"5GB"``
        base: the base model of an adapter, if the adapter does not name it; for other checkpoints the folder with
            config and tokenizer, if the checkpoint has none; for a GGUF file, instead of the converted ones
        adapter: write the adapter instead of merging it
        lora_alpha: α of an adapter whose checkpoint does not record it
        allow_zero_delta: accept an adapter that changes nothing
        threads: number of threads; by default the number of cores, at most 8
        progress: called with the bytes written and the total bytes
        layouts: known layouts

    Raises:
        UserError: the checkpoint is incomplete, or the output cannot be written.
    """
    started = time.perf_counter()
    source, out = Path(source).expanduser(), Path(out).expanduser()
    if dtype not in DTYPES:
        raise UserError("unknown dtype", found=repr(dtype), fix=f"use one of {', '.join(DTYPES)}")
    limit = max_shard_size if isinstance(max_shard_size, int) else bytes_of(max_shard_size)
    layouts = layouts or Layouts()
    request = Request(base=_folder(base), alpha=lora_alpha, adapter_only=adapter)
    check_new(out)
    check_checksums(layouts.find(source)[0])
    checkpoint = layouts.open(source, request)
    if adapter:
        from rlcore_merge.export import export_adapter

        return export_adapter(checkpoint, out, dtype=dtype, started=started, base=request.base)
    ready = prepare(checkpoint, request, layouts, allow_zero_delta=allow_zero_delta)
    return _write(ready, out, dtype, limit, threads or min(os.cpu_count() or 1, 8), progress, started)


def bytes_of(text: str) -> int:
    """Parse a size such as ``5GB`` into bytes. Raises `UserError` if the text is not a size."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B?)\s*", text.upper())
    size = (
        float(match[1]) * _UNITS.get(match[2] if match[2].endswith("B") or not match[2] else match[2] + "B", 0)
        if match
        else 0
    )
    if size < 1:
        raise UserError(
            "the shard size cannot be parsed",
            found=repr(text),
            fix="pass a number and a unit, such as 5GB or 500MB",
        )
    return int(size)


def prepare(checkpoint: Checkpoint, request: Request, layouts: Layouts, *, allow_zero_delta: bool = False) -> Ready:
    """Open the base of an adapter, apply the adapter, and drop tied output layers.

    Raises:
        UserError: the base is unknown, is not the one of the adapter, or lacks a weight.
    """
    from rlcore_merge import lora
    from rlcore_merge.other_files import is_quantised, read_config
    from rlcore_merge.published_names import names_note, published

    base = None
    tensors, buffers, companions = checkpoint.tensors, checkpoint.buffers, list(checkpoint.companions)
    holder = checkpoint
    if (checkpoint.adapter is not None and not tensors) or (
        checkpoint.adapter is not None and checkpoint.layout == "peft"
    ):
        base = holder = _base(checkpoint, request, layouts)
        if is_quantised(base.tensors):
            raise UserError(
                "the base is quantised", where=str(base.folder), fix="pass the unquantised base: --base FOLDER"
            )
        buffers = base.buffers
        companions += base.companions
        holder = replace(base, companions=companions)
    if checkpoint.adapter is not None:
        tensors = lora.apply(holder, checkpoint.adapter, allow_zero_delta=allow_zero_delta)
    if not tensors:
        raise UserError("the checkpoint contains no tensors", where=str(checkpoint.folder))
    notes = [*checkpoint.notes, *(holder.notes if holder is not checkpoint else []), *_quantised_training(checkpoint)]
    tensors = _without_ties(dict(tensors), holder, notes)
    config = read_config(companions) or {}
    names = published(tensors, config)
    notes += names_note(names.values(), config)
    if len(set(names.values())) != len(names):
        raise UserError("a tensor occurs under two names", where=str(checkpoint.folder), fix="remove one of the two")
    return Ready(
        checkpoint=checkpoint,
        base=base,
        tensors={names[name]: tensor for name, tensor in tensors.items()},
        buffers=frozenset(names[name] for name in buffers & names.keys()),
        companions=companions,
        notes=notes,
        changes=holder.changes,
    )


def _quantised_training(checkpoint: Checkpoint) -> list[str]:
    adapter = checkpoint.adapter
    quantization = None if adapter is None else adapter.about_base.get(QUANTIZATION)
    if quantization in (None, "none"):
        return []
    return [
        f"the adapter was trained on the base in {quantization} and is merged into the unquantised base: the merged "
        "model computes slightly different values than in training"
    ]


def _base(checkpoint: Checkpoint, request: Request, layouts: Layouts) -> Checkpoint:
    from rlcore_merge.adapter_settings import check_base_unmodified
    from rlcore_merge.sources.peft import base_folder

    adapter = checkpoint.adapter
    assert adapter is not None
    check_base_unmodified(adapter.settings, adapter.where)
    folder = request.base or base_folder(adapter)
    if folder is None:
        named = adapter.settings.get("base_model_name_or_path")
        raise UserError(
            "the base of the adapter is unknown",
            found=f"the adapter names {named!r}, which is not on this machine"
            if named
            else "the adapter names no base",
            where=adapter.where,
            fix="pass the base: --base FOLDER",
        )
    base = layouts.open(folder, Request())
    if base.adapter is not None and not base.tensors:
        raise UserError(
            "the base is an adapter", where=str(folder), fix="merge that adapter first and pass its output as --base"
        )
    if adapter.fingerprint is not None:
        from rlcore_merge.fingerprint import fingerprint

        found = fingerprint(base.tensors)
        if found != adapter.fingerprint:
            raise UserError(
                "the adapter was trained on another base",
                found=f"the fingerprint of the base is {found}, the adapter records {adapter.fingerprint}",
                where=f"{adapter.where}, base {folder}",
                fix="pass the exact base, which after SFT is the merged SFT model: --base FOLDER",
            )
    return base


def _folder(path: str | Path | None) -> Path | None:
    if path is None:
        return None
    folder = Path(path).expanduser()
    if not folder.is_dir():
        from rlcore_merge.sources.peft import cached

        found = cached(str(path))
        if found is None:
            raise UserError(
                "the base is not a folder",
                found="nothing",
                where=str(folder),
                fix="pass a local folder: --base FOLDER",
            )
        return found
    return folder


def _without_ties(tensors: dict[str, Tensor], holder: Checkpoint, notes: list[str]) -> dict[str, Tensor]:
    """Drop an output layer that the configuration ties to the embedding, if both are equal."""
    from rlcore_merge import lora

    head = next((name for name in tensors if name.endswith("lm_head.weight")), None)
    embedding = next((name for name in tensors if name.endswith("embed_tokens.weight")), None)
    if head is None or embedding is None or "tie_word_embeddings" in holder.changes or not lora.tied(holder):
        return tensors
    from rlcore_merge.tensor_difference import identical

    if identical(tensors[head], tensors[embedding]):
        del tensors[head]
    else:
        holder.changes["tie_word_embeddings"] = False
        notes.append(
            "config.json ties the embeddings, but they differ: both are written and tie_word_embeddings is set to false"
        )
    return tensors


def _write(
    ready: Ready,
    out: Path,
    dtype: str,
    limit: int,
    threads: int,
    progress: Callable[[int, int], None] | None,
    started: float,
) -> Merged:
    from rlcore_merge import completeness, consistency, other_files, provenance, writing

    config = other_files.read_config(ready.companions)
    quantised = other_files.is_quantised(ready.tensors)
    if quantised and dtype != "keep":
        raise UserError("the weights are quantised", where=str(ready.checkpoint.folder), fix="pass --dtype keep")
    if config is not None:
        consistency.check(ready.tensors, config, str(ready.companions[0]))
        weights = str((ready.base or ready.checkpoint).folder)
        completeness.check_complete(ready.tensors, config, weights, quantised=quantised)
    else:
        ready.notes.append(
            "there is no config.json: pass the folder that has one with --base, or transformers cannot load the output"
        )
    plan = writing.plan(ready.tensors, dtype=dtype, buffers=ready.buffers, limit=limit)
    check_room(out, plan.size + SPARE)
    done = 0

    def on_written(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, plan.size)

    with atomic_folder(out) as partial:
        other_files.copy(ready.companions, partial)
        if config is not None:
            ready.notes.extend(other_files.processor_note(config, partial))
            ready.notes.extend(
                other_files.write_config(
                    config,
                    partial,
                    kind=other_files.main_kind(plan.kinds, ready.tensors),
                    changes=ready.changes,
                    quantised=quantised,
                    names=ready.tensors,
                )
            )
        ready.notes.extend(writing.write(plan, partial, threads=threads, on_written=on_written))
        adapter = ready.checkpoint.adapter
        more: dict[str, Any] = {} if adapter is None else {"adapter": dict(adapter.settings)}
        record = provenance.record(
            ready.checkpoint,
            ready.base,
            dtype=dtype,
            tensors=len(ready.tensors),
            size=plan.size,
            more={**more, "notes": ready.notes},
        )
        (partial / provenance.FILE).write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")
        files = tuple(sorted(path.name for path in partial.iterdir()))
    return Merged(
        folder=out,
        layout=ready.checkpoint.layout,
        tensors=len(ready.tensors),
        bytes=plan.size,
        seconds=time.perf_counter() - started,
        files=files,
        notes=tuple(ready.notes),
    )
