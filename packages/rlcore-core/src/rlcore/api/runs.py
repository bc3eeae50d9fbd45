"""A run directory as an object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.api.frames import pandas_frame, polars_frame
from rlcore.api.trajectories import Stored, Trajectories
from rlcore.diagnosis.diagnosing import Diagnosis, diagnose
from rlcore.errors import UserError
from rlcore.plugins.loading import load_attribute
from rlcore.report.notebook import curve, page
from rlcore.rollouts.evidence import TOKENS, Tokens, read_tokens
from rlcore.rollouts.index import TIMES, Row, read_lines
from rlcore.rollouts.reading import Rollouts, is_unfinished
from rlcore.rollouts.records import EVIDENCE, read_groups
from rlcore.rollouts.responses import read_table
from rlcore.runs.directory import (
    asked_of,
    best_checkpoint,
    checkpoints_of,
    config_layer,
    last_checkpoint,
    read_metrics,
    run_of,
)
from rlcore.types import Group

if TYPE_CHECKING:
    import pandas
    import polars

ABOUT = frozenset({"step", "time"})
"""Keys of a row that are no metrics."""


class Metrics(Mapping[str, Mapping[int, float]]):
    """The values of each metric by step: ``metrics["reward/mean"][10]``. Steps without a finite value are left out.

    Attributes:
        rows: one row per step with all its values, as in ``metrics.jsonl``; ``time`` is in seconds since 1970
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = tuple(rows)
        self._values: dict[str, dict[int, float]] = {}
        for row in self.rows:
            for name, value in row.items():
                if name not in ABOUT and value is not None:
                    self._values.setdefault(name, {})[row["step"]] = value

    def __getitem__(self, name: str) -> Mapping[int, float]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Metrics({len(self)} metrics of {len(self.rows)} steps)"

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame with the step as index. Raises `NotInstalledError` without pandas."""
        return pandas_frame(self.rows, index="step")

    def to_polars(self) -> polars.DataFrame:
        """The rows as a data frame. Raises `NotInstalledError` without polars."""
        return polars_frame(self.rows)


_ROLLOUTS = re.compile(r"([a-z]+)-([0-9]+)\.jsonl\.gz")
CURVES = ("evaluation/accuracy", "evaluation/loss", "reward/mean", "loss")
"""Metrics that are drawn, at most the first two that a run has."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk. Everything is read when it is asked for, so a run that still trains can be watched."""

    path: Path
    """The run directory."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration as nested tables. Secrets are masked."""
        return config_layer(self.path).tree

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        return Metrics(read_metrics(self.path / "metrics.jsonl"))

    def trajectories(self, purpose: str | None = None, *, step: int | None = None) -> Trajectories:
        """The stored trajectories in the order of their steps, read from disk while they are iterated.

        Args:
            purpose: ``train`` or ``evaluation``; None selects both
            step: None selects all steps
        """
        files = partial(self._files, purpose, step)
        return Trajectories(
            lambda: (Stored(what, at, group) for what, at, path in files() for group in read_groups(path)),
            lambda: (row for _, _, path in files() for row in read_table(path)),
        )

    def diagnosis(self, *, rules: Sequence[str] = ()) -> list[Diagnosis]:
        """Why the run does not learn, like ``rlcore diagnose``; empty if no rule holds.

        Args:
            rules: import paths of further rules, such as ``file.py:too_polite``
        """
        return diagnose(self.path, rules=rules).found

    def index(self, purpose: str | None = None, *, step: int | None = None) -> list[Row]:
        """A row for each stored trajectory, from the index of its file: nothing else is read.

        A row has its step, group and sibling, how it ended, the policy that sampled it, and what became of its group;
        see ``docs/reference/run-directory.md``. `group` reads the trajectories of a row. Arguments as `trajectories`.

        Raises:
            DataError: there are no rollouts, or a file is damaged.
        """
        stored = Rollouts(self.path)
        files = stored.files(purpose, "all" if step is None else str(step))
        return [one.row for one in stored.select(path for path in files if not is_unfinished(path))]

    def group(self, row: Mapping[str, Any]) -> Group:
        """The group of a row of `index`, which is read by its offset. Raises `DataError` if it cannot be read."""
        path = self.path / "rollouts" / f"{row['purpose']}-{row['step']:06d}.jsonl.gz"
        return Rollouts(self.path).group(path, dict(row))

    def tokens(self, step: int) -> Tokens:
        """Values of the trained tokens of a step. Raises `DataError` if none are stored."""
        return read_tokens(self._evidence(step, "train", TOKENS))

    def times(self, step: int, purpose: str = "train") -> list[Row]:
        """How long the parts of the trajectories of a step took, in seconds. Raises `DataError` if damaged."""
        return read_lines(self._evidence(step, purpose, "times.jsonl.gz"), TIMES)

    def _evidence(self, step: int, purpose: str, kind: str) -> Path:
        return self.path / EVIDENCE / f"{purpose}-{step:06d}.{kind}"

    def view(self, *, trajectories: int = 12) -> Any:
        """The pages of ``rlcore view`` in a notebook, with the best and worst trajectories.

        Args:
            trajectories: how many trajectories are kept in the notebook

        Raises:
            NotInstalledError: rlcore-view is not installed.
        """
        return viewed(self.path, trajectories)

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints that are kept, oldest first. The Hugging Face folder of each is its folder ``model``."""
        return checkpoints_of(self.path)

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint with the best evaluation; None if none was evaluated."""
        return best_checkpoint(self.path)

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint; None if there is none."""
        return last_checkpoint(self.path)

    @property
    def log(self) -> Path:
        """The file with the printed output."""
        return self.path / "output.log"

    def _files(self, purpose: str | None, step: int | None) -> list[tuple[str, int, Path]]:
        """The files of rollouts by step, each with its purpose and step."""
        found = [(_ROLLOUTS.fullmatch(path.name), path) for path in (self.path / "rollouts").glob("*")]
        files = sorted((int(name[2]), name[1], path) for name, path in found if name is not None)
        return [(what, at, path) for at, what, path in files if purpose in (None, what) and step in (None, at)]

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        metrics, best = self.metrics, self.best_checkpoint
        rows = [("recipe", asked_of(self.path).recipe or "none"), ("model", str(self.config["model"]["path"]))]
        rows.append(("steps", str(max((row["step"] for row in metrics.rows), default=0))))
        for name in ("evaluation/accuracy", "evaluation/loss"):
            if values := metrics.get(name):
                rows.append((name, f"{values[min(values)]:.3f} first, {values[max(values)]:.3f} last"))
        if best is not None:
            rows.append(("best checkpoint", str(best)))
        drawn = [name for name in CURVES if len(metrics.get(name, {})) > 1][:2]
        return page(f"Run {self.path}", rows, [curve(name, metrics[name]) for name in drawn])


def viewed(path: Path, trajectories: int) -> Any:
    """The page of a run, or of a file of rollouts, for a notebook. Raises `NotInstalledError` without rlcore-view."""
    page = load_attribute("rlcore_view.notebook:Page", what="the page of a run", needs=("rlcore[view]",))
    return page(path, trajectories)


def load_run(path: str | Path) -> Run:
    """A run by its directory, or by a checkpoint in it.

    Raises:
        UserError: it is not a run directory.
    """
    found = run_of(Path(path).expanduser())
    if found is None:
        there = "no such folder" if not Path(path).expanduser().exists() else "no config.toml in it"
        fix = "give a directory created by rlcore run or rlcore.train"
        raise UserError(f"{path} is not a run directory", found=there, fix=fix)
    return Run(found[0])


__all__ = ["Run", "load_run"]
