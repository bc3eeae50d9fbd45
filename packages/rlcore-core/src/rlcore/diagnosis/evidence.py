"""What a rule sees: the configuration of a run, its metrics so far, and the stored rollouts of the last step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rlcore.errors import RlcoreError
from rlcore.rollouts.records import read_groups
from rlcore.types import Group, Trajectory

Row = Mapping[str, float]
FIRST, MOST = 20, 200
"""Steps that are kept from the start of a run, and in all. Rules compare the start with the latest steps."""
MOST_GROUPS = 64
"""Groups of a step that rules look at."""
TINY_RATE = 1e-10
"""A learning rate below it changes no weight in float32: half of the distance between two numbers near 0.01."""
LAST_STEP = 10**9
"""Limit of step numbers. A damaged line may have any number."""


class Evidence:
    """A run after a step. Rules read it, and it grows by one line of ``metrics.jsonl`` at a time.

    Attributes:
        config: the configuration as nested tables
        rows: the metrics of training steps in order: of the first `FIRST` and of the latest
        evaluations: the lines with metrics of an evaluation, likewise; step 0 is before training
    """

    def __init__(self, run: Path, config: Mapping[str, Any]) -> None:
        self._run, self.config = run, config
        self.rows: list[Row] = []
        self.evaluations: list[Row] = []
        self._stops = set[str]()
        self._read: tuple[int, Sequence[Group]] | None = None

    def add(self, line: Mapping[str, Any]) -> bool:
        """Add a line of metrics; False if it has no valid step. Values that are not finite numbers are left out."""
        step = line.get("step")
        if not isinstance(step, int) or not 0 <= step <= LAST_STEP:
            return False
        row = {name: float(value) for name, value in line.items() if _is_number(value)}
        self._stops.update(name for name in row if name.startswith("stop/"))
        if step:
            _keep(self.rows, row)
        if any(name.startswith("evaluation/") for name in row):
            _keep(self.evaluations, row)
        return True

    @property
    def step(self) -> int:
        """The last training step; 0 before the first."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    def setting(self, key: str) -> Any:
        """The value of a dotted key, the id of a component; None if it is not set."""
        value: Any = self.config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value.get("id") if isinstance(value, Mapping) else value

    def recent(self, name: str, steps: int) -> list[float]:
        """A metric of the last steps, oldest first; empty if one of them lacks it or the run has fewer."""
        return self._all(name, self.rows[-steps:] if len(self.rows) >= steps else [])

    def early(self, name: str, steps: int = 1) -> list[float]:
        """A metric of the first steps, like `recent`."""
        return self._all(name, self.rows[:steps] if len(self.rows) >= steps else [])

    def shares(self, name: str, steps: int) -> list[float]:
        """A count of trajectories as a share of those of its step, like `recent`; a missing count is 0."""
        rows = self.rows[-steps:] if len(self.rows) >= steps else []
        totals = [sum(row.get(reason, 0.0) for reason in self._stops) for row in rows]
        return [row.get(name, 0.0) / total for row, total in zip(rows, totals, strict=True)] if all(totals) else []

    def groups(self) -> Sequence[Group]:
        """The training groups of the last step, at most `MOST_GROUPS`; empty if they are not stored or damaged."""
        if self._read is None or self._read[0] != self.step:
            self._read = self.step, self._stored()
        return self._read[1]

    def trajectories(self) -> Iterator[Trajectory]:
        """The trajectories of `groups`."""
        return (trajectory for group in self.groups() for trajectory in group.trajectories)

    def forget_groups(self) -> None:
        """Release the groups, which are read again when they are needed."""
        self._read = None

    def _stored(self) -> list[Group]:
        try:
            files = (self._run / "rollouts" / f"train-{self.step:06d}.jsonl{suffix}" for suffix in (".gz", ""))
            file = next((file for file in files if file.is_file()), None)
            return list(islice(read_groups(file), MOST_GROUPS)) if file is not None else []
        except (RlcoreError, OSError):
            return []

    @staticmethod
    def _all(name: str, rows: Sequence[Row]) -> list[float]:
        found = [row[name] for row in rows if name in row]
        return found if len(found) == len(rows) else []


def _keep(rows: list[Row], row: Row) -> None:
    rows.append(row)
    if len(rows) > MOST:
        del rows[FIRST]


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer that is larger than any float
        return False


def changes_policy(row: Row) -> bool:
    """Whether a training step may have changed the policy. A metric that a trainer does not log does not count."""
    least = {"updates": 0.0, "learning_rate": TINY_RATE, "gradient_norm": 0.0}
    return all(row.get(name, 1.0) > value for name, value in least.items())
