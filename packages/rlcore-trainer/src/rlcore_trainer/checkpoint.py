"""Checkpoints: whole or not at all.

::

    checkpoints/
        000040/                written beside as .000040.partial, flushed to disk, then renamed
            model/             a Hugging Face folder with the tokenizer's files
            optimiser.pt       what the strategy needs to go on
            trainer.json       step, updates, best evaluation, and the size of every file
        best -> 000040         by evaluation accuracy, then reward; the later of equals
        last -> 000040
        reference/             the policy that a KL term is measured from, where it is not the model's own folder

Randomness needs no state: all of it is keyed by seed and step.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import UserError
from safetensors import SafetensorError
from transformers import PreTrainedModel

from rlcore_trainer.model import TOKENIZER_FILES

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    step: int = 0
    updates: int = 0
    """Optimiser updates so far: the policy's version."""
    best_step: int | None = None
    best_accuracy: float = 0.0
    best_reward: float = 0.0


class Checkpoints:
    """The checkpoints of one run, of which the newest ``keep`` and the best stay."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._links = {"best": folder / "best", "last": folder / "last"}

    def save(self, progress: Progress, model: PreTrainedModel, tokenizer: Path, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, point to it, and remove those that need not stay.

        Args:
            progress: how far the run has come
            model: the policy
            tokenizer: folder whose tokenizer files are copied
            state: what the strategy needs to go on
        """
        target = self.folder / f"{progress.step:06d}"
        partial = self._fresh(target)
        try:
            save_model(model, tokenizer, partial / "model")
            torch.save(dict(state), partial / "optimiser.pt")
            sizes = {str(path.relative_to(partial)): path.stat().st_size for path in _files(partial)}
            trainer = {"format": FORMAT, "progress": asdict(progress), "files": sizes}
            (partial / "trainer.json").write_text(json.dumps(trainer, indent=2) + "\n", encoding="utf-8")
            _move(partial, target)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise UserError(
                "the checkpoint cannot be written",
                found=(str(error).splitlines() or [type(error).__name__])[0],
                where=str(target),
                mend="make room on the disk; what was saved before is whole, and --resume goes on from it",
            ) from error
        self._point("last", target.name)
        if progress.best_step == progress.step:
            self._point("best", target.name)
        self._clean()
        return target

    def save_reference(self, model: PreTrainedModel, tokenizer: Path) -> Path:
        """Keep the policy as it is now, for the KL term of a run that is continued later."""
        target = self.folder / "reference"
        partial = self._fresh(target)
        save_model(model, tokenizer, partial)
        _move(partial, target)
        return target

    def _fresh(self, target: Path) -> Path:
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def _point(self, name: str, to: str) -> None:
        temporary = self.folder / f".{name}.partial"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(to)
        temporary.replace(self._links[name])

    def _clean(self) -> None:
        whole = sorted((path for path in self.folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        pointed = {os.readlink(link) for link in self._links.values() if link.is_symlink()}
        for path in whole[: -self._keep]:
            if path.name not in pointed:
                # Out of sight first: a removal that is cut short must not leave half a checkpoint under its name.
                hidden = path.with_name(f".{path.name}.removed")
                shutil.rmtree(hidden, ignore_errors=True)
                path.rename(hidden)
                shutil.rmtree(hidden)


def save_model(model: PreTrainedModel, tokenizer: Path, folder: Path) -> None:
    """Write a Hugging Face folder: weights, configurations, and the tokenizer's files as they are."""
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)


def read(folder: Path, *, map_location: torch.device) -> tuple[Progress, dict[str, Any]]:
    """Progress and the strategy's state of a checkpoint; the model is in its folder ``model``.

    Raises:
        UserError: the checkpoint is not whole.
    """
    mend = "name another folder in its checkpoints/"
    try:
        trainer = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
        progress, sizes = Progress(**trainer["progress"]), dict(trainer["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("this is not a whole checkpoint", found=str(error), where=str(folder), mend=mend) from None
    for name, size in sizes.items():
        there = (folder / name).stat().st_size if (folder / name).is_file() else None
        if there != size:
            found = f"{name} is missing" if there is None else f"{name} has {there} bytes, not {size}"
            raise UserError("this checkpoint is damaged", found=found, where=str(folder), mend=mend)
    try:
        state = torch.load(folder / "optimiser.pt", map_location=map_location, weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        found = f"optimiser.pt: {type(error).__name__}"
        raise UserError("this checkpoint is damaged", found=found, where=str(folder), mend=mend) from error
    return progress, state


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _move(partial: Path, target: Path) -> None:
    """Flush to disk, then rename; an older folder of that name is replaced."""
    for path in [*_files(partial), *(path for path in partial.rglob("*") if path.is_dir()), partial]:
        _flush(path)
    old = target.with_name(f".{target.name}.removed")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    partial.rename(target)
    _flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
