"""Pseudo-labels: what a teacher wrote about recorded steps, joined by episode and step.

A file has one JSON object per line: ``annotation_id`` (the id of the episode), ``step_id`` and ``pseudo_labels``, which
is null if the teacher failed, or an object with the texts ``progress_estimation``, ``decision_reasoning`` and
``history_summary``. A byte order mark is ignored.
"""

from __future__ import annotations

import mmap
import re
from array import array
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rlcore.errors import DataError
from rlcore.json_files import json_lines, parse_json

Key = tuple[str, int]
"""The id of an episode as text, and the index of a step."""

PROGRESS, REASONING, SUMMARY = "progress_estimation", "decision_reasoning", "history_summary"
TEXTS = (PROGRESS, REASONING, SUMMARY)
_USUAL = re.compile(
    rb'\{"annotation_id": ?(?:"([^"\\]*)"|(\d+)), ?"step_id": ?"?(\d{1,9})"?, ?"pseudo_labels": ?(null)?'
)
"""The beginning of most lines, which need not be parsed to find their key."""


class PseudoLabels:
    """The labels of a file. Only their keys and places are kept in memory: 16 bytes per line."""

    def __init__(self, path: Path) -> None:
        """Find all labels of a file.

        Raises:
            DataError: the file cannot be read.
        """
        self.path = path
        self.counts: Counter[str] = Counter()
        """Lines, and how many of them have no label, repeat a key, or cannot be read. Most labels are read only when
        `find` asks for them."""
        self.example: Key | None = None
        """A key of the file."""
        hashes, places = array("q"), array("q")
        try:
            with path.open("rb") as file:
                place = 0
                for _, line in json_lines(_Placed(file, starts := array("q"))):
                    place = starts[-1]
                    self.counts["lines"] += 1
                    key = self._key(line)
                    if key is not None:
                        self.example = self.example or key
                        hashes.append(hash(key))
                        places.append(place)
                    del starts[:]
                self._bytes: mmap.mmap | bytes = b""
                with suppress(ValueError):  # an empty file
                    self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError("the pseudo-labels cannot be read", found=str(error), where=str(path)) from None
        hashes_L = np.asarray(hashes, dtype=np.int64)
        order_L = np.argsort(hashes_L, kind="stable")
        self._hashes_L, self._places_L = hashes_L[order_L], np.asarray(places, dtype=np.int64)[order_L]
        self.counts["repeated"] = int((np.diff(self._hashes_L) == 0).sum())
        self._asked_L = np.zeros(len(order_L), dtype=bool)
        self._flawed: set[int] = set()

    def find(self, keys_N: Sequence[Key | None]) -> list[Mapping[str, str] | None]:
        """Return the label of each key, with the texts `TEXTS`; None without one. Of several, the last counts."""
        wanted_N = np.array([0 if key is None else hash(key) for key in keys_N], dtype=np.int64)
        first_N = np.searchsorted(self._hashes_L, wanted_N, side="left")
        after_N = np.searchsorted(self._hashes_L, wanted_N, side="right")
        self._asked_L[first_N[first_N < after_N]] = True
        ends_N = zip(first_N.tolist(), after_N.tolist(), strict=True)
        places = (self._places_L[first:after].tolist() for first, after in ends_N)
        return [None if key is None else self._at(key, found) for key, found in zip(keys_N, places, strict=True)]

    @property
    def unused(self) -> int:
        """Number of labels that `find` was not asked for."""
        return len(self._hashes_L) - self.counts["repeated"] - int(self._asked_L.sum())

    def _at(self, key: Key, places: list[int]) -> Mapping[str, str] | None:
        """The label of the last of these places that has one for the key. Keys with equal hashes may differ."""
        for start in reversed(places):
            end = self._bytes.find(b"\n", start)
            row = _parsed(self._bytes[start : end if end >= 0 else len(self._bytes)].removeprefix(BOM_UTF8))
            found = key_of(row)
            if found == key and (label := _label(row["pseudo_labels"])):
                return label
            if found in (key, None) and start not in self._flawed:
                self._flawed.add(start)
                self.counts["unreadable" if found is None else "without a summary"] += 1
        return None

    def _key(self, line: bytes) -> Key | None:
        """The key of a line with a label; None for other lines, which are counted."""
        usual = _USUAL.match(line)
        if usual is not None:
            if usual[4]:
                self.counts["null"] += 1
                return None
            return (usual[1] or usual[2]).decode("utf-8", "replace"), int(usual[3])
        row = _parsed(line)
        key = key_of(row)
        if key is None:
            self.counts["unreadable"] += 1
            return None
        if not row.get("pseudo_labels"):
            self.counts["null"] += 1
            return None
        return key


class _Placed:
    """A file that notes where each of its lines starts."""

    def __init__(self, file: Any, starts: array[int]) -> None:
        self.file, self.starts, self.next = file, starts, 0

    def readline(self, size: int, /) -> bytes:
        line: bytes = self.file.readline(size)
        self.starts.append(self.next)
        self.next += len(line)
        return line


def key_of(row: Any) -> Key | None:
    """The key of a parsed line. Ids may be numbers or texts. None if it has none."""
    if not isinstance(row, dict):
        return None
    episode, step = row.get("annotation_id"), row.get("step_id")
    if type(episode) is str and type(step) is int and "pseudo_labels" in row:
        return episode, step
    if isinstance(episode, bool) or not isinstance(episode, (str, int)) or isinstance(step, bool):
        return None
    if isinstance(step, str) and re.fullmatch(r"\d{1,9}", step.strip()):
        step = int(step)
    return (str(episode), step) if isinstance(step, int) and "pseudo_labels" in row else None


def _label(found: Any) -> Mapping[str, str] | None:
    """The texts of a label; None if it has no summary."""
    if not isinstance(found, dict):
        return None
    texts = {name: text if isinstance(text := found.get(name), str) else "" for name in TEXTS}
    return texts if texts[SUMMARY].strip() else None


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        with suppress(ValueError):  # the parser of Python reads more
            return parse_json(line)
        return None


__all__ = ["PROGRESS", "REASONING", "SUMMARY", "TEXTS", "Key", "PseudoLabels", "key_of"]
