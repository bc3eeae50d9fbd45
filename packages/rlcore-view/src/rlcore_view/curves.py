"""Metrics that grow: the lines after a place in the file, and the last values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlcore.json_files import LONGEST_LINE, open_regular, parse_json
from rlcore.plain_json import number

SPARK = ("reward/mean", "evaluation/accuracy", "evaluation/loss", "loss/total", "loss")
"""Metrics of which the first that a run has is drawn in the list of runs."""
SPARK_VALUES = 60
LARGEST_PLACE = 2**62
"""Of a file in bytes. Files have no larger places."""


class Curves:
    """The values of `SPARK`. Only new lines are read.

    Attributes:
        step: the last step with metrics
        last: the last value of each of these metrics that has one
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start()

    def _start(self) -> None:
        self.step, self.last = 0, dict[str, float]()
        self._place = 0
        self._values: dict[str, list[float]] = {}

    def advance(self) -> None:
        """Read the new lines. A file that a resumed run has shortened is read from its start."""
        for number_of_line, (row, place) in enumerate(line_after(self._path, self._place)):
            if number_of_line == 0 and place <= self._place:
                self._start()
            self._place, self.step = place, row["step"]
            for name in SPARK:
                if (value := number(row.get(name))) is not None:
                    self.last[name] = value
                    self._values.setdefault(name, []).append(value)

    def spark(self) -> list[float]:
        """The values of a curve; the means of equal parts if there are many."""
        values = next((self._values[name] for name in SPARK if name in self._values), [])
        parts = min(len(values), SPARK_VALUES)
        bounds = [len(values) * i // parts for i in range(parts + 1)] if parts else []
        return [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]


def line_after(path: Path, after: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole lines after a place in bytes, each with the place after it, from the start if no line ends there.

    Damaged lines are left out.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        if after:
            file.seek(min(after, LARGEST_PLACE) - 1)
            after = after if file.read(1) == b"\n" else 0
        file.seek(after)
        while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
            after += len(line)
            if (row := _row(line)) is not None:
                yield row, after


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        data = parse_json(line)
    except ValueError:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("step"), int) or number(data["step"]) is None:
        return None
    return data


__all__ = ["Curves", "line_after"]
