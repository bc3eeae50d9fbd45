"""Pseudo-labels: what a teacher wrote about recorded steps, joined by episode and step.

A file has one JSON object per line: ``annotation_id`` (the id of the episode), ``step_id`` and ``pseudo_labels``, which
is null if the teacher failed, or an object with the texts ``progress_estimation``, ``decision_reasoning`` and
``history_summary``. A byte order mark is ignored.
"""

from __future__ import annotations

import mmap
import re
from array import array
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from rlcore.errors import DataError
from rlcore.json_files import json_lines, open_regular, parse_json

Key = tuple[str, int]
"""The id of an episode as text, and the index of a step."""

PROGRESS, REASONING, SUMMARY = "progress_estimation", "decision_reasoning", "history_summary"
TEXTS = (PROGRESS, REASONING, SUMMARY)


class PseudoLabels:
    """The labels of a file. Only their keys and places are kept in memory."""

    def __init__(self, path: Path) -> None:
        """Find all labels of a file.

        Raises:
            DataError: the file cannot be read.
        """
        self.path = path
        self.counts: Counter[str] = Counter(lines=0, repeated=0)
        """Lines, and how many of them have no label, repeat a key, or cannot be read."""
        self.example: Key | None = None
        """A key of the file."""
        self._starts, self._sizes = array("q"), array("q")
        self._numbers: dict[str, dict[int, int]] = {}
        """By episode and step, the number of the last label in ``_starts`` and ``_sizes``."""
        try:
            with open_regular(path) as file:
                for _, line in json_lines(file):
                    self._add(line, file.tell() - len(line))
                self._bytes: mmap.mmap | bytes = b""
                with suppress(ValueError):  # an empty file
                    self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError("the pseudo-labels cannot be read", found=str(error), where=str(path)) from None
        self._asked = bytearray(len(self._starts))

    def find(self, episode: str, step: int) -> Mapping[str, str] | None:
        """Return the label of a step, with the texts `TEXTS`; None without one. Of several, the last counts."""
        number = self._numbers.get(episode, {}).get(step)
        if number is None:
            return None
        self._asked[number] = 1
        start = self._starts[number]
        return _label(_parsed(self._bytes[start : start + self._sizes[number]]))

    @property
    def unused(self) -> int:
        """Number of labels that `find` was not asked for."""
        return len(self._starts) - self.counts["repeated"] - sum(self._asked)

    def _add(self, line: bytes, start: int) -> None:
        self.counts["lines"] += 1
        row = _parsed(line)
        key = key_of(row)
        if key is None:
            self.counts["unreadable"] += 1
        elif not row["pseudo_labels"]:
            self.counts["null"] += 1
        elif _label(row) is None:
            self.counts["without a summary"] += 1
        else:
            episode, step = key
            self.example = self.example or key
            steps = self._numbers.setdefault(episode, {})
            self.counts["repeated"] += step in steps
            steps[step] = len(self._starts)
            self._starts.append(start)
            self._sizes.append(len(line))


def key_of(row: Any) -> Key | None:
    """The key of a parsed line. Ids may be numbers or texts. None if it has none."""
    if not isinstance(row, dict) or "pseudo_labels" not in row:
        return None
    episode, step = row.get("annotation_id"), row.get("step_id")
    if isinstance(episode, bool) or not isinstance(episode, (str, int)) or isinstance(step, bool):
        return None
    if isinstance(step, str) and re.fullmatch(r"\d{1,9}", step.strip()):
        step = int(step)
    return (str(episode), step) if isinstance(step, int) else None


def _label(row: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The texts of the label of a line; None if it has no summary."""
    found = row["pseudo_labels"]
    if not isinstance(found, dict):
        return None
    texts = {name: text if isinstance(text := found.get(name), str) else "" for name in TEXTS}
    return texts if texts[SUMMARY].strip() else None


def _parsed(line: bytes) -> Any:
    """The value of a line; None if it cannot be read."""
    with suppress(ValueError):
        return orjson.loads(line)
    with suppress(ValueError):  # the parser of Python reads more
        return parse_json(line)
    return None


__all__ = ["PROGRESS", "REASONING", "SUMMARY", "TEXTS", "Key", "PseudoLabels", "key_of"]
