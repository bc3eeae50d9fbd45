"""The runs that are shown. A file of rollouts outside of a run is shown like a run."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore.cli.data.stored import is_of_run
from rlcore.errors import DataError, UserError
from rlcore.plain_json import whole
from rlcore.rollouts.records import read_groups, record_name
from rlcore.runs.checkpoints import run_of

from rlcore_view.errors import NotFoundError
from rlcore_view.file import ShownFile
from rlcore_view.recent import stamp
from rlcore_view.run import ShownRun

PARTS = ("config.toml", "rollouts", "checkpoints", "metrics.jsonl", "evidence")
"""A folder with one of these is a run, whole or damaged."""
READING_S = 0.5
"""Seconds in which a list of runs reads those that it has not read yet."""


class Library:
    """The runs at some paths. Folders of runs are read again whenever the runs are listed.

    Args:
        paths: run directories, checkpoints in them, folders of run directories, and files of rollouts
        reading_s: the seconds in which `lines` reads new runs

    Raises:
        UserError: a path is none of these.
        DataError: a file does not begin with a stored group.
    """

    def __init__(self, paths: Sequence[Path], *, reading_s: float = math.inf) -> None:
        self._paths = [_checked(path) for path in paths]
        self._reading_s = reading_s
        self._ids: dict[Path, str] = {}
        self._runs: dict[str, ShownRun] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[ShownRun]:
        """The runs that exist now."""
        found = [run for path in self._paths for run in ([path] if is_run(path) else runs_in(path))]
        with self._lock:
            return [self._known(path) for path in dict.fromkeys(found)]

    def lines(self) -> list[dict[str, Any]]:
        """The rows of the runs. Runs that are not read in time have the state ``unread``; the newest are read first.

        Rows of other runs are brought up to date when all runs are read.
        """
        runs, end = self.runs(), time.monotonic() + self._reading_s
        unread = sorted((run for run in runs if run.last is None), key=_changed, reverse=True)
        for run in unread:
            if time.monotonic() < end:
                run.line()
        return [run.last or run.empty("unread") if unread else run.line() for run in runs]

    def run(self, id: str) -> ShownRun:
        """The run with an id. Raises `NotFoundError` if there is none."""
        found = self._runs.get(id) or next((run for run in self.runs() if run.id == id), None)
        if found is None or not is_run(found.path):
            raise NotFoundError(f"there is no run {id!r}", fix="choose a run of the list")
        return found

    def _known(self, path: Path) -> ShownRun:
        """The run at a path. It keeps its id when others come and go."""
        if path not in self._ids:
            name = whole(record_name(path))
            id, number = name, 1
            while id in self._runs:
                number += 1
                id = f"{name}~{number}"
            self._ids[path] = id
            self._runs[id] = (ShownFile if os.path.isfile(path) else ShownRun)(id, path)
        return self._runs[self._ids[path]]


def _changed(run: ShownRun) -> int:
    found = stamp(run.path)
    return found[1] if found is not None else 0


def is_run(path: Path) -> bool:
    """Whether a path is shown as a run: a run directory, whole or damaged, or a file."""
    # `Path.exists` raises for folders of other users
    return os.path.isfile(path) or any(os.path.exists(path / name) for name in PARTS)


def runs_in(folder: Path) -> list[Path]:
    """The run directories in a folder, by name. None if it cannot be read."""
    try:
        inside = sorted(path for path in folder.iterdir() if path.name[0] != "." and path.is_dir())
    except OSError:
        return []
    return [path for path in inside if is_run(path)]


def _checked(path: Path) -> Path:
    """The absolute path of a run, also if a checkpoint or a file in it was given, of a folder of runs, or of a file."""
    whole = path.expanduser().resolve()
    if os.path.isfile(whole):
        if is_of_run(whole):
            return whole.parent.parent
        if next(read_groups(whole, decode_bytes=str.encode), None) is None:
            raise DataError(f"{path} has no stored rollouts", found="no group", fix="give a file of rlcore eval --save")
    if is_run(whole) or runs_in(whole):
        return whole
    found = run_of(whole)
    if found is None:
        there = "no config.toml in it, and no runs" if whole.is_dir() else "no such folder or file"
        fix = "give a directory created by rlcore run, a folder of such directories, or a file of rlcore eval --save"
        raise UserError(f"{path} is not a run directory", found=there, fix=fix)
    return found[0].resolve()


__all__ = ["READING_S", "Library"]
