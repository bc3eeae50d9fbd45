"""The rollouts of a run: their files, the rows of a step, and a group with what belongs to it."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from rlcore.errors import DataError
from rlcore.rollouts.evidence import TOKENS
from rlcore.rollouts.growing import Growing
from rlcore.rollouts.index import INDEX, ROW, TIMES, Row, evidence_file, is_index_of, read_index, read_lines, step_of
from rlcore.rollouts.reading import Rollouts, is_unfinished
from rlcore.rollouts.records import purpose_and_step
from rlcore.runs.tokenizer import tokenizer_of
from rlcore.types import Group

from rlcore_view.errors import NotFoundError
from rlcore_view.recent import Recent

PURPOSES = ("evaluation", "train")
LATER_STEPS = 4
"""Steps after that of a carried group in which its training is looked for."""
SIBLING = b', "sibling"'
"""What follows the place of a group in a row."""


class StepFile(NamedTuple):
    """A file of rollouts."""

    step: int
    purpose: str
    unfinished: bool
    path: Path


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group with its rows.

    Attributes:
        file: the file that was asked
        number: of the group
        group: the group. Its images have their hashes in place of their bytes
        rows: by sibling
        others: the numbers of all groups of the file in order, each with that of its last sibling
    """

    file: StepFile
    number: int
    group: Group
    rows: dict[int, Row]
    others: dict[int, int]


class Stored:
    """The rollouts of a run directory."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def files(self, purpose: str | None = None, steps: str = "all") -> list[StepFile]:
        """The files by step. Arguments as `Rollouts.files`. Raises `UserError` if ``steps`` is not valid."""
        paths: list[Path] = []
        with suppress(DataError):  # there are none
            paths = Rollouts(self.run).files(purpose, steps)
        found: dict[tuple[int, str], StepFile] = {}
        for path in paths:
            kind, step = purpose_and_step(step_of(path))
            if kind in PURPOSES and step >= 0:  # a finished file comes after what a killed process left
                found[step, kind] = StepFile(step, kind, is_unfinished(path), path)
        return [found[key] for key in sorted(found)]

    def file(self, purpose: str, step: int) -> StepFile:
        """A file. Raises `NotFoundError` if there is none."""
        found = self.files(purpose, str(step)) if purpose in PURPOSES else []
        if not found:
            fix = "choose a step of the list of the run"
            raise NotFoundError(f"there are no rollouts of {purpose} at step {step}", fix=fix)
        return found[0]

    def fingerprint(self) -> str:
        """Differs whenever the names or sizes of the files of rollouts differ."""
        known = hashlib.sha256()
        for folder in ("rollouts", "evidence"):
            with suppress(OSError), os.scandir(self.run / folder) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    with suppress(OSError):
                        known.update(f"{entry.name} {entry.stat().st_size}\n".encode("utf-8", "surrogateescape"))
        return known.hexdigest()[:16]

    def rows(self, file: StepFile) -> list[Row]:
        """The rows of a file, with those of groups of earlier steps that it trained. Raises `DataError` if damaged."""
        if file.unfinished:
            return _GROWING.get(file.path, [], lambda: Growing(file.path)).rows()
        index = evidence_file(file.path, INDEX)
        return _ROWS.get(file.path, [file.path, index], lambda: read_index(file.path))

    def read(self, file: StepFile, groups: Iterable[tuple[int, int]] | None = None) -> list[Row]:
        """The rows as in `rows`, or those of groups by step and number. They are not kept: a search reads all files.

        Rows of groups are missing if there is no index, or if it was written by another program.
        """
        if file.unfinished or groups is None:
            return self.rows(file) if file.unfinished else read_index(file.path)
        starts = {b'{"purpose": "%b", "step": %d, "group": %d' % (file.purpose.encode(), *one) for one in groups}
        index = evidence_file(file.path, INDEX)
        return read_lines(index, ROW, lambda lines: (line for line in lines if line.partition(SIBLING)[0] in starts))

    def firsts(self, file: StepFile) -> tuple[list[Row], Counter[int]]:
        """The first row of each group or more rows, and the number of all rows by step. It is faster than `read`."""
        sizes: list[int] = []

        def chosen(lines: list[bytes]) -> Iterator[bytes]:
            for _, same in groupby(lines, lambda line: line.partition(SIBLING)[0]):
                first, *others = same
                yield first
                sizes.append(1 + len(others))

        rows = [] if file.unfinished else read_lines(evidence_file(file.path, INDEX), ROW, chosen)
        if not is_index_of(file.path, rows):
            rows = self.read(file)
            sizes = [1] * len(rows)
        counts = Counter[int]()
        for row, size in zip(rows, sizes, strict=True):
            counts[row["step"]] += size
        return rows, counts

    def group(self, file: StepFile, number: int) -> StoredGroup:
        """A group of a file. Raises `NotFoundError` if there is none, and `DataError` if it is damaged."""
        rows = [row for row in self.rows(file) if row["step"] == file.step]
        own = {row["sibling"]: row for row in rows if row["group"] == number}
        if not own:
            fix = "choose a group of the step"
            raise NotFoundError(f"{file.purpose} step {file.step} has no group {number}", fix=fix)
        first = next(iter(own.values()))
        own = {row["sibling"]: row for row in self.with_training(own.values())}
        others = {row["group"]: row["sibling"] for row in sorted(rows, key=itemgetter("group", "sibling"))}
        stored = Rollouts(file.path, decode_bytes=str.encode)
        group = _GROUPS.get((file.path, number), [file.path], lambda: stored.group(file.path, first))
        return StoredGroup(file, number, group, own, others)

    def with_training(self, rows: Iterable[Row]) -> list[Row]:
        """Rows of a step. Those of groups that were carried over have what the step that trained them knows."""
        rows, known = list(rows), dict[tuple[int, ...], Row]()
        left = {(row["step"], row["group"]) for row in rows if row.get("fate") == "carried"}
        first = 1 + min((step for step, _ in left), default=0)
        for step in range(first, first + LATER_STEPS):
            if left:
                path = self.run / "rollouts" / f"train-{step:06d}.jsonl.gz"
                brought = self.read(StepFile(step, "train", False, path), left)
                known |= {_trajectory_of(row): row for row in brought}
                left -= {(row["step"], row["group"]) for row in brought}
        return [row | _training(known.get(_trajectory_of(row), {})) for row in rows] if known else rows

    def times(self, file: StepFile, column: str, value: int | str) -> list[Row]:
        """The times with a value, such as those of a group; none if they are not stored or damaged."""
        wanted = f'"{column}": {json.dumps(value)},'.encode()
        with suppress(DataError):
            path = evidence_file(file.path, "times.jsonl.gz")
            rows = read_lines(path, TIMES, lambda lines: (line for line in lines if wanted in line))
            return [row for row in rows if row[column] == value]
        return []

    def tokens_file(self, step: int) -> Path:
        """The values of the tokens that were trained in a step, whether they are stored or not."""
        return self.run / "evidence" / f"train-{step:06d}.{TOKENS}"

    @property
    def tokenizer(self) -> Path | None:
        """The file of the tokenizer; None if it is not here."""
        return tokenizer_of(self.run)


def _trajectory_of(row: Row) -> tuple[int, int, int]:
    """What identifies a trajectory of training."""
    return row["step"], row["group"], row["sibling"]


def _training(row: Row) -> Row:
    """When and by which version a trajectory was trained."""
    return {name: row[name] for name in ("trained_step", "trained_version", "staleness") if name in row}


_ROWS: Recent[list[Row]] = Recent(2)
_GROUPS: Recent[Group] = Recent(3)
_GROWING: Recent[Growing] = Recent(2)

__all__ = ["PURPOSES", "StepFile", "Stored", "StoredGroup"]
