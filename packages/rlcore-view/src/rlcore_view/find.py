"""Search the trajectories of a run: by conditions on their rows, and by texts."""

from __future__ import annotations

import gzip
import heapq
import json
import math
import zlib
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, groupby, islice
from keyword import iskeyword
from typing import Any, BinaryIO, NamedTuple

from rlcore.errors import DataError, UserError
from rlcore.json_files import json_lines, open_regular
from rlcore.plain_json import number
from rlcore.rollouts.conditions import COLUMNS, GROUPED, Where, column_of
from rlcore.rollouts.index import INDEX, Row, evidence_file
from rlcore.rollouts.texts import matches, may_contain_of

from rlcore_view.recent import Recent
from rlcore_view.stored import StepFile, Stored
from rlcore_view.trajectories import row_data

LIMIT, MOST = 200, 10_000
"""Rows of an answer, by default and at most."""
THREADS, AHEAD = 2, 8
"""Threads that decompress groups, and groups that they are ahead of the search."""
LONGEST_GROUP = 32_000_000
"""Bytes of a group that are searched. Several groups are in memory at a time."""
Place = tuple[int, int]
"""Step and number of a group."""
_Sibling = tuple[int, int, int]
"""The place of its group, and its number there."""
_Name = tuple[str, str]
"""A column that is a mapping, and a name in it."""
_Places = Mapping[Place, tuple[int, int] | None]
LONGEST_TEXT = 1_000
"""Limit of a text in characters."""


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

    question: Question
    where: Where | None
    searched: int = 0
    total: int = 0
    most: float = math.inf
    """Rows after which it ends."""
    names: set[_Name] = field(default_factory=set)


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
    limit = min(question.limit, MOST)
    search = _Search(question, Where.parse(question.where) if question.where.strip() else None)
    if question.text and not question.sort:  # a common text is in all groups
        search.most = limit
    files = stored.files(question.purpose or None, question.steps or "all")
    rows = chain.from_iterable(_matching(stored, file, search) for file in files)
    chosen = _first(rows, question.sort, limit)
    is_whole = search.total < search.most
    if search.where is not None and search.searched and is_whole:
        search.where.check({name for _, name in search.names})
    return {
        "rows": [row_data(row) for row in chosen],
        "total": search.total,
        "more": not is_whole,
        "searched": search.searched,
        "columns": [*COLUMNS, *sorted({in_condition(*name) for name in search.names} - set(COLUMNS))],
    }


def in_condition(column: str, name: str) -> str:
    """A name as a condition has it, such as ``tool_errors`` and ``metrics["tools/calculator"]``."""
    is_plain = name.isidentifier() and not iskeyword(name)
    return name if is_plain else f"{column}[{json.dumps(name, ensure_ascii=False)}]"


def _first(rows: Iterable[Row], sort: str, limit: int) -> list[Row]:
    """The first rows in an order. All rows are used, and few are kept."""
    if sort:
        column, descends = sort.removeprefix("-"), sort.startswith("-")
        ordered = heapq.nlargest if descends else heapq.nsmallest
        return ordered(limit, rows, key=partial(_rank, column, -1 if descends else 2))
    rows = iter(rows)
    found = list(islice(rows, limit))
    for _ in rows:
        pass
    return found


def _rank(column: str, missing: int, row: Row) -> tuple[int, Any]:
    """A place in the order of a column: numbers, then texts. Rows without a value are the last ones."""
    value = column_of(row, column)
    if number(value) is not None:
        return 0, value
    return (missing, 0) if value is None or isinstance(value, float) else (1, str(value))


def _matching(stored: Stored, file: StepFile, search: _Search) -> Iterator[Row]:
    """The rows of a file that match."""
    question, where = search.question, search.where
    if search.total >= search.most:
        return

    @cache
    def rows() -> list[Row]:
        return stored.read(file)

    files = [file.path, evidence_file(file.path, INDEX)]
    overview = _OVERVIEWS.get(file.path, files, lambda: _Overview.of(rows()))
    search.searched += overview.rows
    search.names |= overview.names
    places, found = overview.places, None
    if question.task or where is not None or not question.text:
        task = question.task
        found = [row for row in rows() if task in ("", row["task"], f"{row['environment']}/{row['task']}")]
        found = [row for row in found if where is None or where(row)]
        places = {place: places[place] for place in map(_place_of, found)}
    if question.text:
        wanted = None if found is None else {(*_place_of(row), row["sibling"]) for row in found}
        texts = _with_text(stored, file, places, question.text.casefold(), wanted, search.most - search.total)
        if found is None:  # few of the rows are needed
            here = {place[:2] for place in texts}
            found = stored.read(file, here)
            if {_place_of(row): _span(row) for row in found} != {place: places[place] for place in here}:
                found = rows()
        found = [row | {"match": texts[at]} for row in found if (at := (*_place_of(row), row["sibling"])) in texts]
    search.total += len(found or ())
    yield from found or ()


class _Overview(NamedTuple):
    """What is kept of a file between searches."""

    rows: int
    names: frozenset[_Name]
    """What the mappings of its rows have."""
    places: dict[Place, tuple[int, int] | None]
    """The offset and the length of each group; None where the index does not have them."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Overview:
        known: dict[tuple[str, ...], Row] = {}
        places: dict[Place, tuple[int, int] | None] = {}
        for row in rows:
            known.setdefault((*row["metrics"], "", *row["rewards"]), row)  # most rows have the same names
            places.setdefault(_place_of(row), _span(row))
        names = {(column, name) for row in known.values() for column in GROUPED for name in row.get(column, ())}
        return cls(len(rows), frozenset(names), places)


def _place_of(row: Row) -> Place:
    return row["step"], row["group"]


def _span(row: Row) -> tuple[int, int] | None:
    return (row["offset"], row["length"]) if "offset" in row else None


def _with_text(
    stored: Stored, file: StepFile, places: _Places, text: str, wanted: Container[_Sibling] | None, most: float
) -> dict[_Sibling, str]:
    """The trajectories that contain a text, whatever the case, with what is around it; about ``most`` of them."""
    may_contain = may_contain_of(text)
    found: dict[_Sibling, str] = {}
    try:
        for place, line in _lines(stored, file, places):
            if may_contain(line):
                siblings = (((*place, sibling), around) for sibling, around in matches(line, text))
                found |= {sibling: around for sibling, around in siblings if wanted is None or sibling in wanted}
                if len(found) >= most:
                    break
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        fix = "look only into other steps, or restore the file"
        raise DataError(f"cannot search {file.path}", found=f"{type(error).__name__}: {error}", fix=fix) from None
    return found


def _lines(stored: Stored, file: StepFile, places: _Places) -> Iterator[tuple[Place, bytes]]:
    """The stored line of each group. A file without an index is read as a whole."""
    for step, inside in groupby(places.items(), key=lambda item: item[0][0]):
        own, wanted = file, dict(inside)
        if step != file.step:  # rows of groups that were carried over do not have their places
            own = stored.file("train", step)
            here = _Overview.of(stored.rows(own)).places
            wanted = {place: here[place] for place in wanted}
        known = {place: where for place, where in wanted.items() if where is not None}
        with open_regular(own.path) as raw:
            if len(known) == len(wanted):
                yield from _members(raw, known)
            else:
                with gzip.open(raw) if own.path.suffix == ".gz" else raw as lines:
                    for group, (_, line) in enumerate(json_lines(lines)):
                        if (step, group) in wanted:
                            yield (step, group), line


def _members(raw: BinaryIO, places: Mapping[Place, tuple[int, int]]) -> Iterator[tuple[Place, bytes]]:
    """The lines at these offsets and lengths. Threads decompress the next ones meanwhile: zlib works beside Python."""
    waiting: deque[tuple[Place, Future[bytes]]] = deque()
    with ThreadPoolExecutor(THREADS) as threads:
        for place, (offset, length) in places.items():
            raw.seek(offset)
            waiting.append((place, threads.submit(_decompressed, raw.read(length))))
            if len(waiting) > AHEAD:
                place, line = waiting.popleft()
                yield place, line.result()
        for place, line in waiting:
            yield place, line.result()


def _decompressed(member: bytes) -> bytes:
    return zlib.decompressobj(wbits=31).decompress(member, LONGEST_GROUP)


_OVERVIEWS: Recent[_Overview] = Recent(2_000)

__all__ = ["LIMIT", "Question", "find"]
