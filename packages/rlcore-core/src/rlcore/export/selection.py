"""The trajectories of an export, read one group at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rlcore.errors import DataError, NotInstalledError
from rlcore.images.encoding import open_image
from rlcore.rollouts.index import Row, step_of
from rlcore.rollouts.reading import Rollouts, is_unfinished
from rlcore.rollouts.records import blobs_of, record_name
from rlcore.types import Task, Trajectory


@dataclass(frozen=True, slots=True)
class Selected:
    """A stored trajectory. Its images are hashes, which `Selection.image` reads."""

    record: str
    """Name of the file of its step, such as ``train-000007``. A group that was carried over is in two."""
    row: Row
    task: Task
    trajectory: Trajectory


@dataclass(slots=True)
class Selection:
    """The trajectories that meet a condition, in the order of their steps.

    Raises:
        DataError: there are no rollouts.
        UserError: ``steps`` is not valid.
    """

    source: Path
    """The run directory, or a file of rollouts."""
    purpose: str | None = None
    steps: str = "all"
    accepts: Callable[[Row], bool] = lambda row: True
    on_read: Callable[[], None] = lambda: None
    """Called after each trajectory."""
    missing: set[str] = field(default_factory=set, init=False)
    """Images that could not be read."""
    _rollouts: Rollouts = field(init=False, repr=False)
    _files: list[Path] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rollouts = Rollouts(self.source, decode_bytes=str.encode)  # images are read where they are written
        self._files = self._rollouts.files(self.purpose, self.steps)

    @property
    def run(self) -> Path | None:
        """The run directory of the source; None if the file is not in one."""
        folders = (self.source, *self.source.absolute().parents[:2])
        return next((folder for folder in folders if (folder / "config.toml").is_file()), None)

    def rows(self) -> Iterator[Row]:
        """All rows of the index, also those that do not meet the condition."""
        for path in self._files:
            yield from (one.row for one in self._rollouts.select([_current(path)]))

    def __iter__(self) -> Iterator[Selected]:
        """The trajectories."""
        for path in self._files:
            for one in self._rollouts.select([_current(path)]):
                if self.accepts(one.row):
                    yield Selected(record_name(step_of(path)), one.row, one.read().task, one.trajectory)
                    self.on_read()

    def records(self) -> Iterator[tuple[Path, bool, Iterator[Selected]]]:
        """For each file with a selected trajectory: its path, whether its step is in progress, and its trajectories."""
        paths = {record_name(step_of(path)): path for path in self._files}
        for name, found in groupby(self, key=lambda one: one.record):
            path = _current(paths[name])
            yield path, is_unfinished(path), found

    def image(self, sha256: str) -> bytes | None:
        """An image of a supported format; None if it is missing or damaged.

        Raises:
            NotInstalledError: pillow is missing.
        """
        try:
            data = blobs_of(self._files[0]).get(sha256)
            open_image(data)
        except NotInstalledError:
            raise
        except DataError:
            self.missing.add(sha256)
            return None
        return data


def _current(path: Path) -> Path:
    """The file of a step in progress, or its record if the step ended after the files were listed."""
    if not is_unfinished(path) or path.exists():
        return path
    return path.parent.with_name("rollouts") / f"{record_name(step_of(path))}.jsonl.gz"


__all__ = ["Selected", "Selection"]
