"""Checkpoints: whole or not at all.

::

    checkpoints/
        000040/                written beside as .000040.partial, flushed to disk, then renamed
            model/             a Hugging Face folder with the tokenizer's files, or peft's with an adapter and these
            optimiser.pt       what the strategy needs to go on
            collection.json    how far dynamic sampling has drawn the data, and the groups that wait; where it is on
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rlcore.checkpoint_folder import read_checkpoint
from rlcore.errors import UserError
from rlcore.whole_files import beside, sweep
from safetensors import SafetensorError
from transformers import PreTrainedModel

from rlcore_trainer.lora import has_adapter, save_adapter
from rlcore_trainer.model import TOKENIZER_FILES

FORMAT = 1
COLLECTION = "collection.json"


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
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._keep = folder, keep

    def save(
        self,
        progress: Progress,
        model: PreTrainedModel,
        tokenizer: Path,
        state: Mapping[str, Any],
        *,
        collection: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint, point to it, and remove those that need not stay.

        Args:
            progress: how far the run has come
            model: the policy
            tokenizer: folder whose tokenizer files are copied
            state: what the strategy and the updates need to go on
            collection: what dynamic sampling needs to go on, plain JSON values

        Raises:
            UserError: it cannot be written.
        """
        target = self.folder / f"{progress.step:06d}"
        with _making(target) as partial:
            save_model(model, tokenizer, partial / "model")
            torch.save(dict(state), partial / "optimiser.pt")
            if collection:
                (partial / COLLECTION).write_text(json.dumps(collection), encoding="utf-8")
            sizes = {str(path.relative_to(partial)): path.stat().st_size for path in _files(partial)}
            trainer = {"format": FORMAT, "progress": asdict(progress), "files": sizes}
            (partial / "trainer.json").write_text(json.dumps(trainer, indent=2) + "\n", encoding="utf-8")
        with _told(target):
            self._settle(progress)
        return target

    def save_reference(self, model: PreTrainedModel, tokenizer: Path) -> Path:
        """Keep the policy as it is now, for the KL term of a run that is continued later. Raises as `save`."""
        target = self.folder / "reference"
        with _making(target) as partial:
            save_model(model, tokenizer, partial)
        return target

    def resume(self, folder: Path, *, map_location: torch.device) -> tuple[Progress, dict[str, Any], dict[str, Any]]:
        """As `read`, and what a kill after that checkpoint was written kept from being done is done."""
        progress, state, collection = read(folder, map_location=map_location)
        with _told(folder):
            self._settle(progress)
        return progress, state, collection

    def _settle(self, progress: Progress) -> None:
        """Point to the last and the best, and remove what need not stay. Depends on nothing that a kill could lose."""
        sweep(self.folder)
        whole = sorted((path for path in self.folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        best = next((path for path in whole if int(path.name) == progress.best_step), None)
        self._point("last", whole[-1])
        self._point("best", best)
        for path in whole[: -self._keep]:
            if path != best:
                # Out of sight first: a removal that is cut short must not leave half a checkpoint under its name.
                shutil.rmtree(path.rename(beside(path)))

    def _point(self, name: str, to: Path | None) -> None:
        link = self.folder / name
        if to is None:
            link.unlink(missing_ok=True)
        elif not link.is_symlink() or os.readlink(link) != to.name:
            beside(link).symlink_to(to.name)
            beside(link).replace(link)


def save_model(model: PreTrainedModel, tokenizer: Path, folder: Path) -> None:
    """Write a Hugging Face folder: weights, configurations, and the tokenizer's files as they are.

    Of a policy that is an adapter on a base, the adapter alone.
    """
    if has_adapter(model):
        save_adapter(model, folder)
    else:
        model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)


def read(folder: Path, *, map_location: torch.device) -> tuple[Progress, dict[str, Any], dict[str, Any]]:
    """Progress, ``state`` and ``collection`` of a checkpoint; the model is in its folder ``model``.

    Raises:
        UserError: the checkpoint is not whole.
    """
    trainer = read_checkpoint(folder)
    mend = "name another folder in its checkpoints/"
    try:
        progress = Progress(**trainer["progress"])
    except (KeyError, TypeError) as error:
        raise UserError("this is not a whole checkpoint", found=str(error), where=str(folder), mend=mend) from None
    try:
        state = torch.load(folder / "optimiser.pt", map_location=map_location, weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        found = f"optimiser.pt: {type(error).__name__}"
        raise UserError("this checkpoint is damaged", found=found, where=str(folder), mend=mend) from error
    collection = folder / COLLECTION
    return progress, state, json.loads(collection.read_text(encoding="utf-8")) if collection.is_file() else {}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _making(target: Path) -> Iterator[Path]:
    """A new folder to fill, which is flushed to disk and takes its place when the block ends without an error."""
    partial = beside(target)
    try:
        with _told(target):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            yield partial
            for path in [*_files(partial), *(path for path in partial.rglob("*") if path.is_dir()), partial]:
                _flush(path)
            if target.exists():  # a reference of an attempt that was killed before it had a checkpoint
                shutil.rmtree(target)
            partial.rename(target)
            _flush(target.parent)
    except UserError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """What a full disk says, whichever library met it."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        room = next(folder for folder in target.parents if folder.is_dir())
        raise UserError(
            "the checkpoint cannot be written",
            found=f"{first}; {shutil.disk_usage(room).free / 1e6:,.1f} MB are free",  # torch.save does not say why
            where=str(target),
            mend="make room on the disk; what was saved before is whole, and --resume goes on from it",
        ) from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
