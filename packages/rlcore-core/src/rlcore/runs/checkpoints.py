"""Find the checkpoints of a run."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from rlcore.errors import UserError
from rlcore.json_files import refuse_special_files
from rlcore.runs.metrics import read_metrics

_NAME = re.compile(r"[0-9]{6,}")


def checkpoints_of(run: Path) -> list[Path]:
    """Complete checkpoints, oldest first. Unfinished folders have other names."""
    folder = run / "checkpoints"
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name))


def best_checkpoint(run: Path) -> Path | None:
    """The checkpoint that the trainer's link ``best`` points to.

    If it does not point to a complete checkpoint: the one with the highest evaluation accuracy, or reward if there is
    no accuracy; the later one of equals; None if none was evaluated.
    """
    linked = Path(os.path.realpath(run / "checkpoints" / "best"))  # which accepts links in a loop
    for path in checkpoints_of(run):
        if path.resolve() == linked:
            return path
    scores: dict[int, tuple[float, float]] = {}
    for line in read_metrics(run / "metrics.jsonl"):
        values = [line.get(f"evaluation/{name}") for name in ("accuracy", "reward")]
        numbers = [value for value in values if isinstance(value, (int, float))]
        if numbers and all(map(math.isfinite, numbers)):
            accuracy, reward = (float(value) if isinstance(value, (int, float)) else 0.0 for value in values)
            scores[line["step"]] = accuracy, reward
    scored = [path for path in checkpoints_of(run) if int(path.name) in scores]
    return max(scored, key=lambda path: (scores[int(path.name)], int(path.name)), default=None)


def last_checkpoint(run: Path) -> Path | None:
    """The newest complete checkpoint."""
    return next(iter(reversed(checkpoints_of(run))), None)


def run_of(path: Path) -> tuple[Path, Path | None] | None:
    """The run directory and the checkpoint at a path; None when it is neither.

    Raises:
        UserError: a file of the run or of the checkpoint is not a regular one.
    """
    found = _run_of(_short(path.resolve()))
    for folder in found or ():
        if folder is not None:
            refuse_special_files(folder)
    return found


def _run_of(path: Path) -> tuple[Path, Path | None] | None:
    if (path / "config.toml").is_file() and any((path / name).is_dir() for name in ("checkpoints", "rollouts")):
        return path, None
    for checkpoint in (path, path.parent):  # a checkpoint, or the model in one
        run = checkpoint.parent.parent
        named = checkpoint.parent.name == "checkpoints" and _NAME.fullmatch(checkpoint.name)
        if named and checkpoint.is_dir() and (run / "config.toml").is_file():
            return run, checkpoint
    return None


def _short(path: Path) -> Path:
    """The path relative to the working directory, if it is inside of it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


def checkpoint_to_resume(path: Path) -> tuple[Path, Path | None]:
    """The run directory and the checkpoint to resume from; None when it has no checkpoint.

    Raises:
        UserError: the path is neither a run directory nor a checkpoint in one.
    """
    found = run_of(path)
    if found is None:
        there = "no such folder" if not path.exists() else "no config.toml and no checkpoints/ in it"
        fix = "give a directory created by rlcore run, or a folder in its checkpoints/"
        raise UserError(f"cannot resume from {path}: it is not a run directory", found=there, fix=fix)
    run, checkpoint = found
    return run, checkpoint or next(iter(reversed(checkpoints_of(run))), None)
