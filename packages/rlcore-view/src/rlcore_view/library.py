"""The runs that are shown."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from rlcore.errors import UserError
from rlcore.runs.checkpoints import run_of

from rlcore_view.plain import NotFoundError, text
from rlcore_view.run import ShownRun

PARTS = ("config.toml", "rollouts", "checkpoints", "metrics.jsonl", "evidence")
"""A folder with one of these is a run, whole or damaged."""


class Library:
    """The runs at some paths. Folders of runs are read again whenever the runs are listed.

    Args:
        paths: run directories, checkpoints in them, and folders of run directories

    Raises:
        UserError: a path is none of these.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [_checked(path) for path in paths]
        self._ids: dict[Path, str] = {}
        self._runs: dict[str, ShownRun] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[ShownRun]:
        """The runs that exist now."""
        found = [run for path in self._paths for run in ([path] if is_run(path) else runs_in(path))]
        with self._lock:
            return [self._known(path) for path in dict.fromkeys(found)]

    def run(self, id: str) -> ShownRun:
        """The run with an id. Raises `NotFoundError` if there is none."""
        found = self._runs.get(id) or next((run for run in self.runs() if run.id == id), None)
        if found is None or not is_run(found.path):
            raise NotFoundError(f"there is no run {id!r}", fix="choose a run of the list")
        return found

    def _known(self, path: Path) -> ShownRun:
        """The run at a path. It keeps its id when others come and go."""
        if path not in self._ids:
            name = text(path.name)
            id, number = name, 1
            while id in self._runs:
                number += 1
                id = f"{name}~{number}"
            self._ids[path] = id
            self._runs[id] = ShownRun(id, path)
        return self._runs[self._ids[path]]


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory, whole or damaged."""
    return any(os.path.exists(path / name) for name in PARTS)  # `Path.exists` raises for folders of other users


def runs_in(folder: Path) -> list[Path]:
    """The run directories in a folder, by name. None if it cannot be read."""
    try:
        inside = sorted(path for path in folder.iterdir() if path.name[0] != "." and path.is_dir())
    except OSError:
        return []
    return [path for path in inside if is_run(path)]


def _checked(path: Path) -> Path:
    """The absolute path of a run, also if a checkpoint in it was given, or of a folder of runs."""
    whole = path.expanduser().resolve()
    if is_run(whole) or runs_in(whole):
        return whole
    found = run_of(whole)
    if found is None:
        there = "no config.toml in it, and no runs" if whole.is_dir() else "no such folder"
        fix = "give a directory created by rlcore run, or a folder of such directories"
        raise UserError(f"{path} is not a run directory", found=there, fix=fix)
    return found[0].resolve()


__all__ = ["Library"]
