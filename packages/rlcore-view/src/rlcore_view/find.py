"""Search the trajectories of a run: by conditions on their rows, and by texts."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from keyword import iskeyword
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from rlcore.errors import UserError
from rlcore.plain_json import number
from rlcore.rollouts.conditions import COLUMNS, Where, column_of
from rlcore.rollouts.index import Row

from rlcore_view.overview import Groups, Located, Name, Overview, Place, Texts, overview, place_of
from rlcore_view.scan import scan
from rlcore_view.stored import StepFile, Stored
from rlcore_view.trajectories import row_data

LIMIT, MOST = 200, 10_000
"""Rows of an answer, by default and at most."""
LONGEST_TEXT = 1_000
"""Limit of a text in characters."""
FIRST_ROWS = 256
"""Rows of an order whose groups are searched at first. Each further part is twice as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is looked for. Empty texts are no conditions."""

    where: str = ""
    text: str = ""
    sort: str = ""
    """A column, with ``-`` before it for descending order."""
    purpose: str = ""
    steps: str = ""
    task: str = ""
    limit: int = LIMIT


@dataclass(slots=True)
class _Search:
    """A search that goes on: what it has seen so far."""

    stored: Stored
    question: Question
    where: Where | None
    limit: int
    steps: frozenset[int]
    """The training steps that are searched."""
    searched: int = 0
    total: int = 0
    is_whole: bool = True
    """Whether all rows that match are known."""
    names: set[Name] = field(default_factory=set)

    def start(self) -> None:
        """Forget what was seen."""
        self.searched, self.total, self.names = 0, 0, set()

    def add(self, file: StepFile, seen: Overview) -> None:
        """Add a file that was looked at."""
        self.searched += sum(count for step, count in seen.rows.items() if self.is_found_in(file, step))
        self.names |= seen.names

    def is_found_in(self, file: StepFile, step: int) -> bool:
        """Whether the groups that a step sampled are found in a file: those that it brought are found in their own."""
        return step == file.step or step not in self.steps

    def rows(self, file: StepFile, rows: Iterable[Row]) -> list[Row]:
        """The rows of those that are found in a file and meet the conditions, apart from the text."""
        rows = list(rows)
        there = {step for step in {row["step"] for row in rows} if self.is_found_in(file, step)}
        found = self.stored.with_training(row for row in rows if row["step"] in there)
        return [row for row in found if self._fits(row)]

    def _fits(self, row: Row) -> bool:
        if (task := self.question.task) and task not in (row["task"], f"{row['environment']}/{row['task']}"):
            return False
        if self.where is None or self.where(row):
            return True
        # A group that was carried over is kept by the step that trained it.
        return row.get("fate") == "carried" and "trained_step" in row and self.where(row | {"fate": "kept"})

    @property
    def columns(self) -> set[str]:
        """The names that the rows have besides the columns of every index."""
        return {name for _, name in self.names}


def find(stored: Stored, question: Question) -> dict[str, Any]:
    """The trajectories of a run that meet all conditions.

    Raises:
        UserError: a condition is not valid.
        DataError: a file is damaged.
    """
    if len(question.text) > LONGEST_TEXT:
        raise UserError(f"a text to find has at most {LONGEST_TEXT:,} characters", fix="look for a part of it")
    if question.purpose not in ("", "train", "evaluation"):
        raise UserError("purpose must be train or evaluation", found=repr(question.purpose[:40]))
    with _in_words_of_the_form():
        where = Where.parse(question.where) if question.where.strip() else None
        files = stored.files(question.purpose or None, question.steps or "all")
    steps = frozenset(file.step for file in files if file.purpose == "train")
    search = _Search(stored, question, where, min(question.limit, MOST), steps)
    if question.text:
        chosen = _with_text(search, files)
    else:
        rows = chain.from_iterable(_fitting(search, file) for file in files)
        chosen = _first(rows, question.sort, search.limit)
    if where is not None and search.searched and search.is_whole:
        with _in_words_of_the_form():
            where.check(search.columns)
    return {
        "rows": [row_data(row) for row in chosen],
        "total": search.total,
        "more": not search.is_whole,
        "searched": search.searched,
        "columns": [*COLUMNS, *sorted({in_condition(*name) for name in search.names} - set(COLUMNS))],
    }


def in_condition(column: str, name: str) -> str:
    """A name as a condition has it, such as ``tool_errors`` and ``metrics["tools/calculator"]``."""
    is_plain = name.isidentifier() and not iskeyword(name)
    return name if is_plain else f"{column}[{json.dumps(name, ensure_ascii=False)}]"


@contextmanager
def _in_words_of_the_form() -> Iterator[None]:
    """Raise errors of the conditions and steps of a command without its options."""
    try:
        yield
    except UserError as error:
        message = error.message.replace("--where is", "this is").replace("--step must", "steps must")
        fix = re.sub("--where '(.*)'", r"\1", error.fix or "").replace("--step ", "")
        raise type(error)(message, found=error.found, fix=fix) from None


def _first(rows: Iterable[Row], sort: str, limit: int) -> list[Row]:
    """The first rows in an order. All rows are used, and few are kept."""
    if sort:
        ordered = heapq.nlargest if sort.startswith("-") else heapq.nsmallest
        return ordered(limit, rows, key=partial(_rank, sort))
    rows = iter(rows)
    found = list(islice(rows, limit))
    for _ in rows:
        pass
    return found


def _rank(sort: str, row: Row) -> tuple[int, Any]:
    """A place in the order of a column: numbers, then texts. Rows without a value are the last ones."""
    value = column_of(row, sort.removeprefix("-"))
    if number(value) is not None:
        return 0, value
    if value is None or isinstance(value, float):
        return (-1 if sort.startswith("-") else 2), 0
    return 1, str(value)


def _fitting(search: _Search, file: StepFile) -> list[Row]:
    """The rows of a file that meet the conditions, apart from the text."""
    rows = search.stored.read(file)
    search.add(file, overview(search.stored, file, rows))
    found = search.rows(file, rows)
    search.total += len(found)
    return found


def _with_text(search: _Search, files: Sequence[StepFile]) -> list[Row]:
    """The first rows that contain the text and meet the conditions.

    The groups are searched as they are stored until there are enough trajectories. If the text is rare, few rows are
    read then. If it is common, the groups are searched in the order of the rows that meet the conditions.
    """
    question, groups = search.question, Groups(search.stored)
    visited, seen, texts = list[StepFile](), set[Located](), Texts()

    def all_groups() -> Iterator[Located]:
        for file in files:
            visited.append(file)
            search.add(file, groups.overview(file))
            yield from (group for group in groups.of(file) if search.is_found_in(file, group.place[0]))

    for batch, found in scan(all_groups(), question.text):
        seen |= {*batch}
        texts |= found
        if len(texts) >= search.limit:
            search.is_whole = False
            break
    has_names = search.where is None or not search.where.unknown(search.columns)  # those of few rows are known
    if (search.is_whole and has_names) or not (question.where or question.task or question.sort):
        rows = [row for file in visited for row in search.rows(file, groups.rows(file, texts))]
        search.total = len(rows)
        return _first(rows, question.sort, search.limit)
    return _in_order(search, files, groups, seen, texts)


class _Entry(NamedTuple):
    """A row in an order, without what is large."""

    rank: tuple[int, Any]
    file: StepFile
    place: Place
    sibling: int


def _in_order(
    search: _Search, files: Sequence[StepFile], groups: Groups, seen: set[Located], texts: Texts
) -> list[Row]:
    """The first rows that contain the text, by searching the groups in the order of the rows.

    Args:
        search: the search
        files: where to search
        groups: their groups
        seen: the groups that were searched so far
        texts: what was found in them
    """
    search.start()
    sort = search.question.sort
    entries: Iterator[_Entry] = (
        _Entry(_rank(sort, row), file, place_of(row), row["sibling"])
        for file in files
        for row in _fitting(search, file)
    )
    if sort:
        entries = iter(sorted(entries, key=attrgetter("rank"), reverse=sort.startswith("-")))
    found, count = list[_Entry](), FIRST_ROWS
    while len(found) < search.limit and (part := list(islice(entries, count))):
        where = [groups.locate(one.file, one.place) for one in part]
        for batch, more in scan(sorted({*where} - seen), search.question.text):
            seen |= {*batch}
            texts |= more
        found += [one for one, group in zip(part, where, strict=True) if group.trajectory(one.sibling) in texts]
        count *= 2
    search.total, search.is_whole = len(found), len(found) < search.limit
    order = {one[1:]: place for place, one in enumerate(found[: search.limit])}
    rows = [
        (order[at], row)
        for file in dict.fromkeys(one.file for one in found[: search.limit])
        for row in search.rows(file, groups.rows(file, texts))
        if (at := (file, place_of(row), row["sibling"])) in order
    ]
    return [row for _, row in sorted(rows, key=itemgetter(0))]


__all__ = ["LIMIT", "Question", "find"]
