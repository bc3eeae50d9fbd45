"""Atomic checkpoints.

::

    checkpoints/
        000040/                written as .000040.partial; flushed to disk and renamed while training continues
            model/             a Hugging Face model folder or a peft adapter folder, with the tokenizer files
            state.safetensors  tensors of the optimiser and the trainer
            trainer.json       step, updates, best evaluation, and the rest of that state
            collection.json    position in the data, and groups that are carried over
            manifest.json      format, and the size and checksum of every file
        best -> 000040         by the metric of [checkpoint.best]; the latest on ties
        last -> 000040
        reference/             the reference policy of the KL term, if it is not the original model

No random state is stored, because all randomness is keyed by seed and step.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlcore.atomic_files import beside, flush, sweep
from rlcore.errors import UserError, WriteError
from rlcore.json_files import read_json
from rlcore.runs.checkpoint_folder import check_checkpoint, write_manifest
from safetensors import SafetensorError

from rlcore_trainer.checkpoints import state_file
from rlcore_trainer.checkpoints.state_file import STATE_FILE
from rlcore_trainer.policy.policy import Policy

COLLECTION = "collection.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run."""

    step: int = 0
    updates: int = 0
    """Number of optimiser updates so far, which is the policy's version."""
    best_step: int | None = None
    best_score: tuple[float, ...] = ()
    """The metrics that decide the best step, higher values being better."""
    stop_score: float | None = None
    """The best value so far of the metric of ``trainer.early_stop``, higher values being better."""
    stale: int = 0
    """Measurements of that metric since then."""
    warmup: int | None = None
    """Number of updates of a warm-up that has not ended; None after it, or without one."""


class Restored(NamedTuple):
    """What a checkpoint contains besides the policy, whose folder is ``model``."""

    progress: Progress
    state: Mapping[str, Any]
    """The state of the optimiser and of the trainer."""
    collection: Mapping[str, Any]
    """The position in the data."""


class Checkpoints:
    """The checkpoints of one run. The newest ``keep`` checkpoints and the best one are retained."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._keep = folder, keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def save(
        self,
        progress: Progress,
        state: Mapping[str, Any],
        write: Callable[[Path], object],
        *,
        collection: Mapping[str, Any] | None = None,
    ) -> Future[Path]:
        """Write the files of a checkpoint, and complete it in a thread, so that training can continue.

        The files are written to the page cache, which takes a fraction of the time until they are on the disk. The
        thread computes their checksums, flushes them, renames the folder, updates the links and removes old
        checkpoints. Until then the checkpoint does not exist for any reader.

        Args:
            progress: progress of the run
            state: state of the strategy and the trainer
            write: calls `write_part` with the folder in all processes that hold a part of the policy or the state
            collection: position in the data, as plain JSON values

        Returns:
            The folder of the complete checkpoint, or the `WriteError` that prevented it.

        Raises:
            WriteError: the files cannot be written.
        """
        target = self.folder / f"{progress.step:06d}"
        with _undone_after_errors(target):
            partial = _new_partial(target)
            plain, tensors = state_file.separated(state)
            state_file.create(partial / STATE_FILE, tensors)
            write(partial)
            if collection:
                (partial / COLLECTION).write_text(json.dumps(collection), encoding="utf-8")
            trainer = json.dumps({"progress": asdict(progress), "state": plain})
            (partial / "trainer.json").write_text(trainer + "\n", encoding="utf-8")
        return self._thread.submit(self._complete, target, progress)

    def _complete(self, target: Path, progress: Progress) -> Path:
        _make_whole(target, progress.step)
        with _told(target):
            self._settle(progress)
        return target

    def save_reference(self, write: Callable[[Path], object]) -> Path:
        """Save the current policy as the reference of the KL term for a resumed run. Raises as `save`."""
        target = self.folder / "reference"
        with _undone_after_errors(target):
            write(_new_partial(target))
        _make_whole(target)
        return target

    def resume(self, folder: Path) -> Restored:
        """Read a checkpoint, and finish the link updates and removals that an interrupted `save` left undone."""
        restored = read(folder)
        with _told(folder):
            sweep(self.folder)
            self._settle(restored.progress)
        return restored

    def _settle(self, progress: Progress) -> None:
        """Update the links and remove old checkpoints. Only uses the state on disk, so it can be repeated."""
        whole = sorted((path for path in self.folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        best = next((path for path in whole if int(path.name) == progress.best_step), None)
        self._point("last", whole[-1])
        self._point("best", best)
        for path in whole[: -self._keep]:
            if path != best:
                # Rename first, so that an interrupted removal does not leave a partial checkpoint under its name.
                shutil.rmtree(path.rename(beside(path)))

    def _point(self, name: str, to: Path | None) -> None:
        link = self.folder / name
        if to is None:
            link.unlink(missing_ok=True)
        elif not link.is_symlink() or os.readlink(link) != to.name:
            beside(link).symlink_to(to.name)
            beside(link).replace(link)


def write_part(folder: Path, policy: Policy, state: Mapping[str, Any], *, main: bool) -> None:
    """Write the policy, and the tensors of the state of this process, into the folder of a new checkpoint.

    Args:
        folder: the folder
        policy: the policy; see `Policy.save`
        state: as in `Checkpoints.save`
        main: whether this process writes the tensors that are not divided between processes
    """
    policy.save(folder / "model")
    state_file.write(folder / STATE_FILE, state_file.separated(state)[1], main=main)


def read(folder: Path) -> Restored:
    """Return what a checkpoint contains.

    The checksums of the files are not compared, because ``rlcore run --resume`` has done so.

    Raises:
        UserError: the checkpoint is incomplete or damaged.
    """
    check_checkpoint(folder, checksums=False)
    name = "trainer.json"
    try:
        saved = read_json(folder / name)
        progress = Progress(**{**saved["progress"], "best_score": tuple(saved["progress"]["best_score"])})
        plain, name = saved["state"], STATE_FILE
        state = state_file.read(folder / name, plain)
        name = COLLECTION
        collection = read_json(folder / name) if (folder / name).is_file() else {}
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        found = f"{name}: {type(error).__name__}"
        fix = "resume from another folder in checkpoints/"
        raise UserError("the checkpoint is damaged", found=found, where=str(folder), fix=fix) from error
    return Restored(progress, state, collection)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _new_partial(target: Path) -> Path:
    """Return a new folder for the files of ``target``."""
    partial = beside(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def _make_whole(target: Path, step: int = 0) -> None:
    """Add the manifest to the partial folder of ``target``, flush all of it to disk, and rename it to ``target``."""
    partial = beside(target)
    with _undone_after_errors(target):
        write_manifest(partial, step)
        for path in [*_files(partial), *(path for path in partial.rglob("*") if path.is_dir()), partial]:
            flush(path)
        # An earlier one, such as that of the warm-up, is removed only after it is replaced.
        replaced = target.rename(beside(target.with_name(f"{target.name}-replaced"))) if target.exists() else None
        partial.rename(target)
        flush(target.parent)
        if replaced is not None:
            shutil.rmtree(replaced)


@contextmanager
def _undone_after_errors(target: Path) -> Iterator[None]:
    """Convert errors as `_told`, and remove the partial folder of ``target``."""
    try:
        with _told(target):
            yield
    except UserError:
        shutil.rmtree(beside(target), ignore_errors=True)
        raise


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """Convert the write errors of all libraries involved, such as those of a full disk."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        room = next(folder for folder in target.parents if folder.is_dir())
        raise WriteError(
            "the checkpoint cannot be written",
            found=f"{first}; {shutil.disk_usage(room).free / 1e6:,.1f} MB are free",  # torch.save does not say why
            where=str(target),
            fix="free disk space, then use --resume, which continues from the last checkpoint or else starts again",
        ) from error
