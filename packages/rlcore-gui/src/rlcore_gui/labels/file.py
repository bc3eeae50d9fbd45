"""The file of labels: one JSON object per step, appended as soon as the step is done.

A line is written as a whole and reaches the disk before the next question, so a process that is killed loses at most
the questions that it was asking. A half-written last line is removed when the file is opened again.
"""

from __future__ import annotations

import fcntl
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.atomic_files import whole
from rlcore.errors import DataError, UserError
from rlcore.json_files import json_lines, open_regular, parse_json, to_line

from rlcore_gui.labels.prompt import StepLabels
from rlcore_gui.prepare.pseudo_labels import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The labels of a step, or why it has none."""

    key: Key
    labels: StepLabels | None
    failure: str | None = None
    """The kind of failure; None for a step with labels, and where a file does not say."""
    detail: str | None = None
    """The last failure in words."""
    model: str | None = None
    """The teacher."""

    def as_json(self) -> dict[str, Any]:
        """The record as in a file: the three fields that data preparation reads, and where the labels come from."""
        episode, index = self.key
        row: dict[str, Any] = {
            "annotation_id": episode,
            "step_id": index,
            "pseudo_labels": self.labels.as_json() if self.labels else None,
        }
        others = {"model": self.model, "failure": self.failure, "detail": self.detail}
        return row | {name: value for name, value in others.items() if value is not None}


class LabelFile:
    """The records of a file, and the end of the file. Use `opened`."""

    def __init__(self, path: Path, *, read_only: bool, again: frozenset[str] | None) -> None:
        self.path = path
        self.duplicates = 0
        """Number of lines about a step that has another line."""
        self._records: dict[Key, Record] = {}
        self._end = -1
        lines = self._read()
        asked_again = [key for key, record in self._records.items() if _is_asked_again(record, again)]
        for key in asked_again:
            del self._records[key]
        if read_only:
            return
        if len(self._records) < lines:
            self._rewrite()
        with _told(path):
            self._end = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __contains__(self, key: Key) -> bool:
        return key in self._records

    def __len__(self) -> int:
        return len(self._records)

    def summary(self, key: Key) -> str | None:
        """The history summary of a step; None without labels."""
        record = self._records.get(key)
        return record.labels.summary if record and record.labels else None

    def models(self) -> Counter[str]:
        """The number of labelled steps by teacher."""
        return Counter(record.model or "unknown" for record in self._records.values() if record.labels)

    def append(self, record: Record) -> None:
        """Write a record to the disk, or leave the file as it was.

        Raises:
            UserError: the file cannot be written.
        """
        line = f"{to_line(record.as_json())}\n".encode()
        with _told(self.path):
            size = os.fstat(self._end).st_size
            try:
                while line:
                    line = line[os.write(self._end, line) :]
                os.fsync(self._end)
            except OSError:
                os.ftruncate(self._end, size)
                raise
        self._records[record.key] = record

    def close(self) -> None:
        """Close the file."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _read(self) -> int:
        """Read the records. Returns the number of lines, and one more if the last one must be written again."""
        if not self.path.exists():
            return 0
        lines = 0
        with _told(self.path), open_regular(self.path) as file, _lines_told(self.path):
            for number, line in json_lines(file):
                lines += 1
                try:
                    self._keep(_record(line, f"{self.path}:{number}"))
                except DataError:
                    if line.endswith(b"\n"):  # other lines are those of a killed process
                        raise
                lines += not line.endswith(b"\n")
        return lines

    def _keep(self, record: Record) -> None:
        known = self._records.get(record.key)
        self.duplicates += known is not None
        if known is None or (known.labels is None and record.labels is not None):
            self._records[record.key] = record

    def _rewrite(self) -> None:
        with whole(self.path) as file:
            for record in self._records.values():
                file.write(f"{to_line(record.as_json())}\n".encode())


@contextmanager
def opened(path: Path, *, again: frozenset[str] | None, read_only: bool = False) -> Iterator[LabelFile]:
    """The file of labels at a path, created if it does not exist, for one process at a time.

    Duplicate lines are removed; labels have precedence over failures.

    Args:
        path: the file
        again: kinds of failures whose steps count as not asked, so that their lines are removed; None for all kinds
        read_only: change nothing

    Raises:
        UserError: the file cannot be written, or another process uses it.
        DataError: a line is not a record.
    """
    if read_only:
        yield LabelFile(path, read_only=True, again=again)
        return
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock").open("a", encoding="utf-8")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process writes {path}", fix="wait until it ends, or choose another out") from None
        file = LabelFile(path, read_only=False, again=again)
        try:
            yield file
        finally:
            file.close()


def _is_asked_again(record: Record, again: frozenset[str] | None) -> bool:
    return record.labels is None and (again is None or record.failure in again)


def _record(line: bytes, where: str) -> Record:
    try:
        row = parse_json(line.removeprefix(BOM_UTF8))
        if not isinstance(row, dict):
            raise ValueError("not an object")
        episode, index, plain = row["annotation_id"], row["step_id"], row["pseudo_labels"]
        if isinstance(episode, bool) or not isinstance(episode, (str, int)):
            raise ValueError("annotation_id is neither text nor an integer")
        if isinstance(index, bool) or not str(index).isdecimal():
            raise ValueError("step_id is not an integer from 0")
        if plain is not None and not isinstance(plain, dict):
            raise ValueError("pseudo_labels is neither an object nor null")
        failure, detail, model = (_text(row.get(name)) for name in ("failure", "detail", "model"))
        labels = StepLabels.from_json(plain) if plain else None
        return Record(key=(str(episode), int(index)), labels=labels, failure=failure, detail=detail, model=model)
    except KeyError as error:
        found = f"there is no {error}"
    except ValueError as error:
        found = str(error)
    fix = "correct or remove the line, or choose another out"
    raise DataError("a line of the labels is not a record", found=found, where=where, fix=fix)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        fix = "free disk space or change the permissions; the same command continues"
        raise UserError(f"{path} cannot be used", found=found, fix=fix) from None


@contextmanager
def _lines_told(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise DataError("the file of labels cannot be read", found=str(error), where=str(path)) from None
