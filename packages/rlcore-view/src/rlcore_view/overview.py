"""What is kept of a file of rollouts between searches: its groups, and where they are stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rlcore.rollouts.conditions import GROUPED
from rlcore.rollouts.index import INDEX, Row, evidence_file

from rlcore_view.recent import Recent
from rlcore_view.stored import StepFile, Stored

Place = tuple[int, int]
"""Step and number of a group."""
Span = tuple[int, int]
"""Offset and length of a group in its file."""
Sibling = tuple[Path, int, int]
"""A trajectory: the file of its group, the number of its group, and its number there."""
Texts = dict[Sibling, str]
"""The trajectories that contain a text, with what is around it."""
Name = tuple[str, str]
"""A column that is a mapping, and a name in it."""


class Overview(NamedTuple):
    """Of a file."""

    rows: Counter[int]
    """Its number of rows, by the step that sampled them."""
    names: frozenset[Name]
    """What the mappings of its rows have."""
    places: dict[Place, Span | None]
    """The place of each group in the file; None where the index does not have it."""

    @classmethod
    def of(cls, rows: Sequence[Row], counts: Counter[int]) -> Overview:
        """The overview of some rows of each group, and the number of all rows by step."""
        known: dict[tuple[str, ...], Row] = {}
        places: dict[Place, Span | None] = {}
        for row in rows:
            known.setdefault((*row["metrics"], "", *row["rewards"]), row)  # most rows have the same names
            places.setdefault(place_of(row), span_of(row))
        names = {(column, name) for row in known.values() for column in GROUPED for name in row.get(column, ())}
        return cls(counts, frozenset(names), places)


class Located(NamedTuple):
    """A group in a file of rollouts."""

    path: Path
    place: Place
    span: Span | None

    def trajectory(self, sibling: int) -> Sibling:
        """A trajectory of the group."""
        return self.path, self.place[1], sibling


class Groups:
    """The groups of files during a search.

    Args:
        stored: the run
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._known: dict[StepFile, Overview] = {}
        self._sampled: dict[int, StepFile] = {}

    def overview(self, file: StepFile) -> Overview:
        """The overview of a file. Raises as `Stored.rows`."""
        if file not in self._known:
            self._known[file] = overview(self._stored, file)
        return self._known[file]

    def of(self, file: StepFile) -> Iterator[Located]:
        """The groups of a file. Raises as `overview`."""
        return (self.locate(file, place) for place in self.overview(file).places)

    def locate(self, file: StepFile, place: Place) -> Located:
        """Where a group of a file is: one that was carried over is in the file of the step that sampled it."""
        step = place[0]
        if step != file.step:
            if step not in self._sampled:
                self._sampled[step] = self._stored.file("train", step)
            file = self._sampled[step]
        return Located(file.path, place, self.overview(file).places.get(place))

    def rows(self, file: StepFile, texts: Texts) -> list[Row]:
        """The rows of a file that have a text, with what is around it."""
        found = {at[:2] for at in texts}
        groups = [one for one in self.of(file) if (one.path, one.place[1]) in found]
        places = {one.place: one.span if one.path == file.path else None for one in groups}
        rows = self._stored.read(file, places) if places else []
        if {place_of(row): span_of(row) for row in rows} != places:
            rows = self._stored.read(file)
        siblings = (self.locate(file, place_of(row)).trajectory(row["sibling"]) for row in rows)
        return [row | {"match": texts[at]} for row, at in zip(rows, siblings, strict=True) if at in texts]


def overview(stored: Stored, file: StepFile, rows: Sequence[Row] | None = None) -> Overview:
    """The overview of a file. If all its rows are given, it has the names of all rows. Raises as `Stored.rows`."""
    files = [file.path, evidence_file(file.path, INDEX)]
    if rows is not None:

        def made() -> Overview:
            return Overview.of(rows, Counter(row["step"] for row in rows))

        return _OVERVIEWS.get((file.path, "rows"), files, made)
    return _OVERVIEWS.get(file.path, files, lambda: Overview.of(*stored.firsts(file)))


def place_of(row: Row) -> Place:
    """The place of the group of a row."""
    return row["step"], row["group"]


def span_of(row: Row) -> Span | None:
    """The place in the file; None if the row does not have it."""
    return (row["offset"], row["length"]) if "offset" in row else None


_OVERVIEWS: Recent[Overview] = Recent(2_000)

__all__ = ["Groups", "Located", "Name", "Overview", "Place", "Sibling", "Texts", "overview", "place_of"]
