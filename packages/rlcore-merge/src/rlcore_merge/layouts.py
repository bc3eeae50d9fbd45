"""Find the checkpoint in a folder and detect its layout.

Detection reads file names, never contents, and imports no heavy module before a layout is found, so that a wrong
folder is reported quickly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import UserError, did_you_mean

from rlcore_merge.checkpoint import inside
from rlcore_merge.specs import MergerSpec

if TYPE_CHECKING:
    from rlcore.plugins.installed import Plugins

    from rlcore_merge.checkpoint import Checkpoint, Request

OWN = (
    MergerSpec(
        id="peft",
        target="rlcore_merge.sources.huggingface:open_adapter",
        summary="peft adapters: LoRA, rsLoRA, DoRA.",
        looked_for="adapter_config.json (a peft adapter)",
    ),
    MergerSpec(
        id="verl-fsdp",
        target="rlcore_merge.sources.fsdp:open_folder",
        summary="verl's FSDP folders, with one file per process.",
        looked_for="model_world_size_W_rank_R.pt (verl's FSDP)",
    ),
    MergerSpec(
        id="accelerate-fsdp",
        target="rlcore_merge.sources.fsdp:open_accelerate",
        summary="accelerate's FSDP files of each process, without torch.distributed.checkpoint.",
        looked_for="pytorch_model_fsdp_0_rankR.bin (accelerate's FSDP with use_dcp=False)",
    ),
    MergerSpec(
        id="torch-dcp",
        target="rlcore_merge.sources.fsdp:open_dcp",
        summary="torch.distributed.checkpoint, and accelerate's FSDP folders.",
        looked_for=".metadata with *.distcp (torch.distributed.checkpoint, accelerate's FSDP)",
    ),
    MergerSpec(
        id="deepspeed-zero",
        target="rlcore_merge.sources.deepspeed:open_folder",
        summary="DeepSpeed ZeRO, stages 1 to 3.",
        looked_for="*_optim_states.pt (DeepSpeed's ZeRO)",
    ),
    MergerSpec(
        id="gguf",
        target="rlcore_merge.sources.gguf:open_file",
        summary="GGUF files of llama.cpp: llama, qwen2, qwen3, gemma3.",
        looked_for="NAME.gguf, passed itself (llama.cpp)",
        needs=("rlcore-merge[gguf]",),
    ),
    MergerSpec(
        id="huggingface",
        target="rlcore_merge.sources.huggingface:open_folder",
        summary="Hugging Face folders, safetensors or .bin, and rlcore's own checkpoints.",
        looked_for="model.safetensors or pytorch_model.bin, or their index (a Hugging Face folder)",
    ),
)
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_RANK_OF_ACCELERATE = re.compile(r"pytorch_model_fsdp_(0_)?rank\d+\.bin")
_WEIGHTS = {
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model_fsdp.bin"),
}


def own_layout(folder: Path) -> str | None:
    """The id of the built-in layout of a folder or file, from the file names; None if there is none."""
    if _is_gguf(folder):
        return "gguf"
    try:
        names = {entry.name for entry in os.scandir(folder)}
    except OSError:
        return None
    if "adapter_config.json" in names:
        return "peft"
    if any(name.startswith("model_world_size_") and name.endswith(".pt") for name in names):
        return "verl-fsdp"
    if any(_RANK_OF_ACCELERATE.fullmatch(name) for name in names):
        return "accelerate-fsdp"
    if ".metadata" in names:
        return "torch-dcp"
    if any(name.endswith("_optim_states.pt") and "zero_pp_rank_" in name for name in names):
        return "deepspeed-zero"
    if names & _WEIGHTS or ("config.json" in names and any(name.endswith(".safetensors") for name in names)):
        return "huggingface"
    return None


def _is_gguf(path: Path) -> bool:
    return path.suffix.lower() == ".gguf" and path.is_file()


class Layouts:
    """The known layouts: built-in ones and those of plugins."""

    def __init__(self, plugins: Plugins | None = None) -> None:
        self._given = plugins

    @cached_property
    def _plugins(self) -> Plugins:
        from rlcore.plugins.installed import Plugins

        return self._given or Plugins()

    def of(self, folder: Path) -> str | None:
        """The layout of this folder or file itself. Plugins are asked only if no built-in layout matches."""
        answer = own_layout(folder) or self._plugins.claim("rlcore_checkpoint_layout", folder=folder)
        return str(answer) if answer is not None else None

    def specs(self) -> list[MergerSpec]:
        """All layouts."""
        offered = [offer.spec for offer in self._plugins.offers("rlcore_mergers", MergerSpec)]
        own = {spec.id for spec in OWN}
        return [*OWN, *(spec for spec in offered if isinstance(spec, MergerSpec) and spec.id not in own)]

    def open(self, source: Path, request: Request) -> Checkpoint:
        """Find the checkpoint in a folder and open it.

        Raises:
            UserError: there is no checkpoint, or it is incomplete.
        """
        from rlcore.plugins.loading import load_attribute

        folder, layout = self.find(source)
        known = [spec for spec in OWN if spec.id == layout] or [spec for spec in self.specs() if spec.id == layout]
        spec = next(iter(known), None)
        if spec is None:
            raise UserError(f"no installed plugin supports the layout {layout!r}", where=str(folder))
        opened: Checkpoint = load_attribute(spec.target, what=f"the layout {layout!r}", needs=spec.needs)(
            folder, request
        )
        if folder != source:
            opened.notes.insert(0, f"the checkpoint is in {folder}")
        return opened

    def find(self, source: Path) -> tuple[Path, str]:
        """The folder or file of the checkpoint and its layout: the source itself or a folder inside it.

        Raises:
            UserError: there is no checkpoint. The message names checkpoints nearby or the supported layouts.
        """
        if source.is_file() and (layout := self.of(source)) is not None:
            return source, layout
        if not source.is_dir():
            self._raise_not_a_folder(source)
        for folder in _candidates(source):
            if (layout := own_layout(folder)) is not None:
                return inside(folder, source), layout
        for folder in _candidates(source):
            if (layout := self.of(folder)) is not None:
                return inside(folder, source), layout
        if _is_run(source):
            from rlcore.models.folder import no_checkpoint

            raise no_checkpoint(source)
        near = [path for path in sorted(source.iterdir()) if _is_gguf(path)]
        near += [folder for folder in _nearby(source) if own_layout(folder) is not None]
        names = [entry.name for entry in sorted(source.iterdir())[:6]]
        raise UserError(
            "there is no checkpoint in this folder",
            found=f"{', '.join(names)}{', …' if len(names) == 6 else ''}" if names else "nothing: the folder is empty",
            where=str(source),
            fix=f"pass {near[0]}, which has one" + (f"; {len(near) - 1} more found nearby" if near[1:] else "")
            if near
            else "pass a folder with one of: " + "; ".join(spec.looked_for for spec in self.specs() if spec.looked_for),
        )

    @staticmethod
    def _raise_not_a_folder(source: Path) -> None:
        if source.is_file():
            fix = f"pass the folder that contains it: {source.parent}"
            raise UserError("expected a folder or a .gguf file", found="another file", where=str(source), fix=fix)
        if os.path.lexists(source):
            fix = "give a folder or a file; this is a device, a pipe or a broken link"
            raise UserError("expected a folder or a .gguf file", found="not a regular file", where=str(source), fix=fix)
        parent = source.parent
        near = did_you_mean(source.name, [path.name for path in parent.iterdir()]) if parent.is_dir() else None
        if not parent.exists() and _HUB_ID.fullmatch(str(source)):
            near = f"download the model first: hf download {source} --local-dir FOLDER"
        raise UserError("the folder does not exist", found="nothing", where=str(source), fix=near or "check the path")


def _candidates(source: Path) -> Iterator[Path]:
    """Folders in which the checkpoint may be, most likely first."""
    yield source
    yield source / "actor"
    for checkpoints in (source / "checkpoints", source):
        for name in ("best", "last"):
            yield checkpoints / name / "model"
            if (checkpoints / name / "adapter").is_dir():
                yield checkpoints / name / "adapter"
    if _is_run(source):
        yield from _newest(source)
    else:
        yield source / "model"  # in a checkpoint; in a run directory this is the initial model
    yield source / "pytorch_model_fsdp_0"
    for pointer, pattern in (("latest", "{}"), ("latest_checkpointed_iteration.txt", "global_step_{}")):
        path = source / pointer
        if path.is_file():
            named = pattern.format(path.read_text(encoding="utf-8", errors="replace").strip()[:100])
            if named and "/" not in named and "\0" not in named:
                yield source / named
                yield source / named / "actor"
    yield source / "lora_adapter"


def _is_run(folder: Path) -> bool:
    """Whether the folder is a run directory of rlcore, see `rlcore.runs.directory`."""
    return (folder / "config.toml").is_file() and (folder / "checkpoints").is_dir()


def _newest(run: Path) -> Iterator[Path]:
    """The model of the best or last checkpoint if the links to them are missing."""
    from rlcore.runs.directory import best_checkpoint, last_checkpoint

    if checkpoint := best_checkpoint(run) or last_checkpoint(run):
        yield checkpoint / "model"


def _nearby(source: Path) -> Iterator[Path]:
    """Folders below and above the source that may have been intended."""
    try:
        children = sorted((path for path in source.iterdir() if path.is_dir()), key=_by_number, reverse=True)[:50]
    except OSError:
        return
    for child in children:
        yield from _candidates(child)
    for child in children:
        if os.access(child, os.R_OK | os.X_OK):
            below = [path for path in sorted(child.iterdir()) if path.is_dir()]
            yield from [path for path in below if path.name != "model" or not _is_run(child)][:20]
    yield from (source.parent, source.parent / "actor")


def _by_number(path: Path) -> tuple[int, str]:
    digits = "".join(filter(str.isdigit, path.name))
    return int(digits or 0), path.name
