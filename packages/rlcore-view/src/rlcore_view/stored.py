"""The rollouts of a run: their files, the rows of a step, and a group with what belongs to it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rlcore.cli.data.decoding import tokenizer_of
from rlcore.errors import DataError
from rlcore.json_files import json_lines, open_regular, parse_json
from rlcore.runs.evidence import TOKENS
from rlcore.runs.index import INDEX, Row, evidence_file, read_index, rows_of, step_of
from rlcore.runs.reading import Rollouts, is_unfinished
from rlcore.runs.records import group_from_json, members, purpose_and_step, read_group, read_groups
from rlcore.types import Group

from rlcore_view.plain import LARGEST, NotFoundError, Recent, number

PURPOSES = ("evaluation", "train")
LATER_STEPS = 4
"""Steps after that of a carried group in which its training is looked for."""
LONGEST_INDEX = 200_000_000
"""Limit of an index in bytes."""
NUMBERS = ("offset", "length", "tokens", "turns", "trained_step", "trained_version")
"""Columns with numbers that are not negative."""
LARGEST_NUMBER = 2**62


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
        others: the numbers of all groups of the file, in order
    """

    file: StepFile
    number: int
    group: Group
    rows: dict[int, Row]
    others: list[int]


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
            return _GROWING.get(file.path, [], lambda: Growing(file)).rows()
        index = evidence_file(file.path, INDEX)
        return _ROWS.get(file.path, [file.path, index], lambda: read_rows(file.path))

    def read(self, file: StepFile, numbers: Sequence[int] | None = None) -> list[Row]:
        """At least the rows with these numbers, or all, as `rows`. They are not kept: a search passes by all files."""
        if file.unfinished:
            return self.rows(file)
        return read_rows(file.path) if numbers is None else rows_at(file.path, numbers)

    def group(self, file: StepFile, number: int) -> StoredGroup:
        """A group of a file. Raises `NotFoundError` if there is none, and `DataError` if it is damaged."""
        rows = [row for row in self.rows(file) if row["step"] == file.step]
        own = {row["sibling"]: row for row in rows if row["group"] == number}
        if not own:
            fix = "choose a group of the step"
            raise NotFoundError(f"{file.purpose} step {file.step} has no group {number}", fix=fix)
        first = next(iter(own.values()))
        if first.get("fate") == "carried":
            own = {sibling: row | self._training_of(row) for sibling, row in own.items()}
        others = sorted({row["group"] for row in rows})
        group = _GROUPS.get((file.path, number), [file.path], lambda: _read(file.path, first))
        return StoredGroup(file, number, group, own, others)

    def _training_of(self, row: Row) -> Row:
        """When and by which version a trajectory that was carried over was trained; empty if it was not."""
        later = [file for file in self.files("train") if file.step > row["step"] and not file.unfinished]
        place = {name: row[name] for name in ("step", "group", "sibling")}
        for file in later[:LATER_STEPS]:
            for other in self.rows(file):
                if all(other[name] == value for name, value in place.items()):
                    names = ("trained_step", "trained_version", "staleness")
                    return {name: other[name] for name in names if name in other}
        return {}

    def times(self, file: StepFile, group: int) -> Iterator[Row]:
        """The times of the trajectories of a group; none if they are not stored or damaged."""
        wanted = b'"group": %d,' % group
        with (
            suppress(OSError, EOFError, ValueError, zlib.error),
            open_regular(evidence_file(file.path, "times.jsonl.gz")) as raw,
            gzip.open(raw) as lines,
        ):
            for _, line in json_lines(lines):
                if lines.tell() > LONGEST_INDEX:
                    return
                row = parse_json(line) if wanted in line else None
                if isinstance(row, dict) and row.get("group") == group and _is_time(row):
                    yield row

    def tokens_file(self, step: int) -> Path:
        """The values of the tokens that were trained in a step, whether they are stored or not."""
        return self.run / "evidence" / f"train-{step:06d}.{TOKENS}"

    @property
    def tokenizer(self) -> Path | None:
        """The file of the tokenizer; None if it is not here."""
        return tokenizer_of(self.run)


def read_rows(path: Path) -> list[Row]:
    """The same as `read_index`, in a third of the time for an index that is in order. Raises `DataError` if damaged."""
    try:
        with open_regular(evidence_file(path, INDEX)) as raw, gzip.open(raw) as file:
            lines = file.read(LONGEST_INDEX).rstrip(b"\n").replace(b"\n", b",")  # texts in JSON have no line breaks
        rows = json.loads(b"[" + lines + b"]")
        end = max((row["offset"] + row["length"] for row in rows if "offset" in row), default=0)
        if all(map(_is_row, rows)) and (path.stat().st_size == end if end else rows):
            return list(rows)
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError, zlib.error):
        pass  # `read_index` says what is wrong
    if evidence_file(path, INDEX).exists():
        return read_index(path)
    purpose, step = purpose_and_step(path)
    return computed_rows(StepFile(step, purpose, False, path))


def computed_rows(file: StepFile) -> list[Row]:
    """The rows of a file without an index, from its groups. Raises `DataError` if the file is damaged."""
    rows = Growing(file).rows()
    if rows and rows[-1]["offset"] + rows[-1]["length"] == file.path.stat().st_size:
        return rows
    return [  # without places, of a file that is damaged, not compressed, or was compressed by another program
        row
        for place, group in enumerate(read_groups(file.path, decode_bytes=str.encode))
        for row in rows_of(group, {"purpose": file.purpose, "step": file.step, "group": place}, {}, {})
    ]


def rows_at(path: Path, numbers: Sequence[int]) -> list[Row]:
    """Some rows of `read_rows`, without parsing the others. Raises `DataError` if the index is damaged."""
    try:
        with open_regular(evidence_file(path, INDEX)) as raw, gzip.open(raw) as file:
            lines = file.read(LONGEST_INDEX).split(b"\n")
        return [json.loads(lines[number]) for number in numbers]
    except (OSError, EOFError, ValueError, LookupError, RecursionError, zlib.error):  # there is no index
        rows = read_rows(path)
        return [rows[number] for number in numbers if number < len(rows)]


def _is_row(row: Any) -> bool:
    """Whether a value has the columns that are used, with their types."""
    kinds = row.get("sampling", {}), row["metrics"], row["rewards"]
    texts = row["task"], row["environment"], row["stop"], row["purpose"], row.get("fate", ""), row.get("why", "")
    places = row["step"], row["group"], row["sibling"], *(row[name] for name in NUMBERS if name in row)
    reward = row["reward"]
    return (
        all(type(one) is dict and all(map(_is_flat, one.values())) for one in kinds)
        and all(type(one) is str for one in texts)
        and all(type(one) is int and 0 <= one < LARGEST_NUMBER for one in places)
        and (reward is None or (type(reward) in (int, float) and abs(reward) < LARGEST))
    )


def _is_flat(value: Any) -> bool:
    return not isinstance(value, (dict, list))


def _is_time(row: Row) -> bool:
    """Whether a row is a time of a trajectory."""
    numbers = [number(row.get(name)) for name in ("start", "seconds")]
    return type(row.get("sibling")) is int and None not in numbers


class Growing:
    """The rows of a step in progress. Only new groups are read."""

    def __init__(self, file: StepFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._rows: list[Row] = []
        self._place = self._groups = self._inode = 0

    def rows(self) -> list[Row]:
        """The rows of the groups that are complete. Raises `DataError` if the file is gone."""
        with self._lock:
            self._advance()
            return list(self._rows)

    def _advance(self) -> None:
        try:
            found = self._file.path.stat()
            if found.st_size < self._place or found.st_ino != self._inode:
                self._start()
                self._inode = found.st_ino
            with open_regular(self._file.path) as file:
                file.seek(self._place)
                for line, length in members(file):
                    self._add(line, length)
        except (OSError, ValueError, zlib.error) as error:  # the rest of a file of a killed process
            if isinstance(error, FileNotFoundError):
                raise DataError(f"{self._file.path} is gone", fix="the step has ended: ask again") from None

    def _add(self, line: bytes, length: int) -> None:
        group = group_from_json(parse_json(line), decode_bytes=str.encode)
        where = {"purpose": self._file.purpose, "step": self._file.step, "group": self._groups}
        self._rows += rows_of(group, where, {}, {"offset": self._place, "length": length})
        self._place, self._groups = self._place + length, self._groups + 1


def _read(path: Path, row: Row) -> Group:
    """The group of a row. Images are not read."""
    if "offset" in row:
        return read_group(path, row["offset"], decode_bytes=str.encode)
    found = next(islice(read_groups(path, decode_bytes=str.encode), row["group"], None), None)
    if found is None:
        raise DataError(f"{path} has no group {row['group']}", fix="restore the file")
    return found


_ROWS: Recent[list[Row]] = Recent(2)
_GROUPS: Recent[Group] = Recent(3)
_GROWING: Recent[Growing] = Recent(2)

__all__ = ["PURPOSES", "StepFile", "Stored", "StoredGroup", "computed_rows"]
