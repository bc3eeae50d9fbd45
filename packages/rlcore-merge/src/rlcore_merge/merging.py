"""Merge a checkpoint of any layout into one Hugging Face folder or one adapter folder."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.models.adapter import QUANTIZATION
from rlcore.models.folder import check_checksums

from rlcore_merge.checkpoint import PART, Adapter, Checkpoint, Request, names_note, published_names, read_config
from rlcore_merge.layouts import Layouts

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor
    from rlcore_merge.writing import Plan

DTYPES = {"keep": None, "bf16": "BF16", "fp16": "F16", "fp32": "F32"}
"""The values of ``--dtype`` and the names of their kinds."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
FILE = "rlcore-merge.json"
"""Records the inputs and options of a merge next to its output."""
SPARE = 64 << 20
"""Disk space required in addition to the weights, in bytes: tokenizers, the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Summary of the written output."""

    folder: Path
    layout: str
    tensors: int
    bytes: int
    seconds: float
    files: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A model with its adapter applied, or an adapter alone: the tensors to write, not yet computed."""

    checkpoint: Checkpoint
    tensors: dict[str, Tensor]
    companions: list[Path]
    notes: list[str]
    adapter: Mapping[str, Any] | None
    """The settings of the adapter."""
    config: dict[str, Any] | None = None
    """The content of config.json, if there is one."""
    base: Checkpoint | None = None
    buffers: frozenset[str] = frozenset()
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Keys of config.json to change."""


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
    request = Request(base=_folder(base), alpha=lora_alpha)
    folder, _ = layouts.find(source)  # before numpy is imported, so that a wrong folder is reported quickly
    from rlcore_merge import model_config, writing

    writing.check_new(out)
    check_checksums(folder)
    checkpoint = layouts.open(source, request)
    kind = DTYPES[dtype]
    if adapter:
        ready, about_base = _adapter_alone(checkpoint, request.base)
        plan = writing.plan(ready.tensors, kind, limit=2**63, stem="adapter_model", metadata=about_base)
    else:
        ready = prepare(checkpoint, request, layouts, allow_zero_delta=allow_zero_delta)
        _check(ready, dtype)
        plan = writing.plan(ready.tensors, kind, limit=limit, buffers=ready.buffers)
    writing.check_room(out, plan.size + SPARE)
    done = 0

    def on_written(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, plan.size)

    with writing.atomic_folder(out) as unfinished:
        model_config.copy_files(ready.companions, unfinished)
        if adapter:
            _write_json(unfinished / "adapter_config.json", ready.adapter)
        elif ready.config is not None:
            changes = model_config.write_config(ready.config, unfinished, ready.tensors, plan.kinds, ready.changes)
            ready.notes.extend(changes)
        threads = threads or min(os.cpu_count() or 1, 8)
        ready.notes.extend(writing.write(plan, unfinished, threads=threads, on_written=on_written))
        _write_json(unfinished / FILE, _record(ready, plan, dtype))
        files = tuple(sorted(path.name for path in unfinished.iterdir()))
    return Merged(
        folder=out,
        layout=checkpoint.layout,
        tensors=len(ready.tensors),
        bytes=plan.size,
        seconds=time.perf_counter() - started,
        files=files,
        notes=tuple(ready.notes),
    )


def bytes_of(text: str) -> int:
    """Parse a size such as ``5GB`` into bytes. Raises `UserError` if the text is not a size."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B?)\s*", text.upper())
    size = 0.0
    if match is not None:
        unit = match[2] if match[2].endswith("B") or not match[2] else match[2] + "B"
        size = float(match[1]) * _UNITS.get(unit, 0)
    if size < 1:
        fix = "pass a number and a unit, such as 5GB or 500MB"
        raise UserError("the shard size cannot be parsed", found=repr(text), fix=fix)
    return int(size)


def prepare(checkpoint: Checkpoint, request: Request, layouts: Layouts, *, allow_zero_delta: bool = False) -> Ready:
    """Open the base of an adapter, apply the adapter, and drop tied output layers.

    Raises:
        UserError: the base is unknown, is not the one of the adapter, or lacks a weight.
    """
    from rlcore_merge import lora
    from rlcore_merge.model_config import is_quantised

    adapter, base, holder = checkpoint.adapter, None, checkpoint
    tensors, buffers, companions = checkpoint.tensors, checkpoint.buffers, list(checkpoint.companions)
    if adapter is not None:
        if not tensors:
            base = _base(adapter, request, layouts)
            if is_quantised(base.tensors):
                fix = "pass the unquantised base: --base FOLDER"
                raise UserError("the base is quantised", where=str(base.folder), fix=fix)
            buffers = base.buffers
            companions += base.companions
            holder = replace(base, companions=companions)
        tensors = lora.apply(holder, adapter, allow_zero_delta=allow_zero_delta)
    if not tensors:
        raise UserError("the checkpoint contains no tensors", where=str(checkpoint.folder))
    notes = [*checkpoint.notes, *(base.notes if base is not None else [])]
    quantization = adapter.about_base.get(QUANTIZATION, "none") if adapter is not None else "none"
    if quantization != "none":
        notes.append(
            f"the adapter was trained on the base in {quantization} and is merged into the unquantised base: the "
            "merged model computes slightly different values than in training"
        )
    tensors = _without_ties(dict(tensors), holder, notes)
    config = read_config(companions)
    names = published_names(tensors, config or {})
    notes += names_note(names.values(), config or {})
    if len(set(names.values())) != len(names):
        raise UserError("a tensor occurs under two names", where=str(checkpoint.folder), fix="remove one of the two")
    return Ready(
        checkpoint=checkpoint,
        tensors={names[name]: tensor for name, tensor in tensors.items()},
        companions=companions,
        notes=notes,
        adapter=None if adapter is None else adapter.settings,
        config=config,
        base=base,
        buffers=frozenset(names[name] for name in buffers & names.keys()),
        changes=holder.changes,
    )


def _base(adapter: Adapter, request: Request, layouts: Layouts) -> Checkpoint:
    from rlcore_merge.lora import fingerprint
    from rlcore_merge.sources.huggingface import base_folder

    adapter.check_base_unmodified()
    named = adapter.settings.get("base_model_name_or_path")
    folder = request.base or base_folder(named)
    if folder is None:
        unknown = f"the adapter names {named!r}, which is not on this machine"
        raise UserError(
            "the base of the adapter is unknown",
            found=unknown if named else "the adapter names no base",
            where=adapter.where,
            fix="pass the base: --base FOLDER",
        )
    base = layouts.open(folder, Request())
    if base.adapter is not None and not base.tensors:
        fix = "merge that adapter first and pass its output as --base"
        raise UserError("the base is an adapter", where=str(folder), fix=fix)
    if adapter.fingerprint is not None and (found := fingerprint(base.tensors)) != adapter.fingerprint:
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
    if folder.is_dir():
        return folder
    from rlcore_merge.sources.huggingface import cached

    found = cached(str(path))
    if found is None:
        fix = "pass a local folder: --base FOLDER"
        raise UserError("the base is not a folder", found="nothing", where=str(folder), fix=fix)
    return found


def _without_ties(tensors: dict[str, Tensor], holder: Checkpoint, notes: list[str]) -> dict[str, Tensor]:
    """Drop an output layer that the configuration ties to the embedding, if both are equal."""
    from rlcore_merge.lora import tied
    from rlcore_merge.tensors import identical

    head = next((name for name in tensors if name.endswith("lm_head.weight")), None)
    embedding = next((name for name in tensors if name.endswith("embed_tokens.weight")), None)
    if head is None or embedding is None or "tie_word_embeddings" in holder.changes or not tied(holder):
        return tensors
    if identical(tensors[head], tensors[embedding]):
        del tensors[head]
    else:
        holder.changes["tie_word_embeddings"] = False
        notes.append(
            "config.json ties the embeddings, but they differ: both are written and tie_word_embeddings is set to false"
        )
    return tensors


def _check(ready: Ready, dtype: str) -> None:
    """Raise `UserError` if the weights cannot be converted, contradict config.json, or are incomplete."""
    from rlcore_merge import model_config

    quantised = model_config.is_quantised(ready.tensors)
    if quantised and dtype != "keep":
        raise UserError("the weights are quantised", where=str(ready.checkpoint.folder), fix="pass --dtype keep")
    if ready.config is None:
        ready.notes.append(
            "there is no config.json: pass the folder that has one with --base, or transformers cannot load the output"
        )
        return
    model_config.check_consistent(ready.tensors, ready.config, str(ready.companions[0]))
    weights = str((ready.base or ready.checkpoint).folder)
    model_config.check_complete(ready.tensors, ready.config, weights, quantised=quantised)


def _adapter_alone(checkpoint: Checkpoint, base: Path | None) -> tuple[Ready, Mapping[str, str]]:
    """The adapter of a checkpoint, with the settings that peft needs, and the metadata about its base."""
    adapter = checkpoint.adapter
    if adapter is None:
        found = f"a full model ({checkpoint.layout})"
        fix = "omit --adapter"
        raise UserError("the checkpoint has no adapter", found=found, where=str(checkpoint.folder), fix=fix)
    adapted = {match["module"] for name in adapter.tensors if (match := PART.match(name))}
    other = {name.rpartition(".")[0] for name in adapter.tensors if not PART.match(name)}
    task = str(adapter.settings.get("task_type") or "CAUSAL_LM").removeprefix("TaskType.")
    given = {**adapter.settings, "task_type": "CAUSAL_LM" if task == "None" else task}
    settings = {
        **given,
        "peft_type": "LORA",
        "target_modules": _short_names(adapted, checkpoint.tensors),
        "modules_to_save": sorted({name.rpartition(".")[2] for name in other - adapted}) or None,
        "use_dora": any("lora_magnitude_vector" in name for name in adapter.tensors),
        "base_model_name_or_path": None if base is None else str(base),
        "inference_mode": True,
        "bias": "lora_only" if other & adapted else "none",
        **given,
    }
    ready = Ready(
        checkpoint=checkpoint,
        tensors={f"base_model.model.{name}": tensor for name, tensor in adapter.tensors.items()},
        companions=[folder for folder in checkpoint.companions if folder != base],
        notes=list(checkpoint.notes),
        adapter=settings,
    )
    return ready, adapter.about_base


def _short_names(adapted: set[str], tensors: Iterable[str]) -> list[str]:
    """Names that select exactly the adapted modules: the last part of their path, or the path if others share it.

    Modules of the model are known from the names of all tensors. If the checkpoint contains only the adapter, those of
    a vision tower are named in full, because it may have other layers with the same names.
    """
    from rlcore_merge.model_config import VISION

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


def _record(ready: Ready, plan: Plan, dtype: str) -> dict[str, Any]:
    """The content of ``rlcore-merge.json``."""
    try:
        own = version("rlcore-merge")
    except PackageNotFoundError:
        own = "unknown"
    inputs = []
    for source in [ready.checkpoint, *([ready.base] if ready.base is not None else [])]:
        for path in source.inputs:
            digest = source.identity.get(path.name)
            more = {} if digest is None else {"sha256_of_checksums": digest}
            inputs.append({"file": str(path), "bytes": path.stat().st_size, **more})
    return {
        "rlcore_merge": own,
        "python": platform.python_version(),
        "source": str(ready.checkpoint.folder),
        "layout": ready.checkpoint.layout,
        "base": None if ready.base is None else str(ready.base.folder),
        "dtype": dtype,
        "tensors": len(plan.tensors),
        "bytes": plan.size,
        "inputs": inputs,
        **({} if ready.adapter is None else {"adapter": dict(ready.adapter)}),
        "notes": ready.notes,
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")
