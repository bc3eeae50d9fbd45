"""Search the trajectories of a run: by conditions on their rows, and by texts."""

from __future__ import annotations

import gzip
import heapq
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, groupby, islice
from keyword import iskeyword
from typing import Any, BinaryIO, NamedTuple

from rlcore.cli.data.where import COLUMNS, GROUPED, Where, column_of
from rlcore.errors import DataError, UserError
from rlcore.json_files import json_lines, open_regular, parse_json
from rlcore.runs.index import INDEX, Row, evidence_file

from rlcore_view.plain import Recent, number
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
_Name = tuple[str, str]
"""A column that is a mapping, and a name in it."""
_Places = Mapping[Place, tuple[int, int] | None]
LONGEST_TEXT = 1_000
"""Limit of a text in characters."""
AROUND = 60
"""Characters before and after a text that was found."""
_NUMBERS = (b'"token_ids": [', b'"loss_mask": [')
"""The longest parts of a stored trajectory, in which no text is looked for."""
_ASCII = re.compile(r"[ !#-\[\]-~]+")
_CASELESS = re.compile(r"[\u2e80-\ua4cf\uac00-\ud7a3]+")
"""Chinese, Japanese and Korean, which have no case."""
_FOLDED = [
    chr(code).encode()
    for code in range(0x80, 0x10000)
    if not 0xD800 <= code < 0xE000 and any(one.isascii() for one in chr(code).casefold())
]
"""The characters besides ASCII that equal one of ASCII, at least in part, when case does not matter, such as the long
s."""


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
    search = _Search(question, Where.parse(question.where) if question.where.strip() else None)
    files = stored.files(question.purpose or None, question.steps or "all")
    rows = chain.from_iterable(_matching(stored, file, search) for file in files)
    chosen = _first(rows, question.sort, min(question.limit, MOST))
    if search.where is not None and search.searched:
        search.where.check({name for _, name in search.names})
    return {
        "rows": [row_data(row) for row in chosen],
        "total": search.total,
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

    @cache
    def rows() -> list[Row]:
        return stored.read(file)

    files = [file.path, evidence_file(file.path, INDEX)]
    overview = _OVERVIEWS.get(file.path, files, lambda: _Overview.of(rows()))
    search.searched += overview.rows
    search.names |= overview.names
    places = overview.places
    if question.task or where is not None or not question.text:
        task = question.task
        found = [row for row in rows() if task in ("", row["task"], f"{row['environment']}/{row['task']}")]
        found = [row for row in found if where is None or where(row)]
        places = {place: places[place] for place in map(_place_of, found)}
    if question.text:
        siblings = _with_text(stored, file, places, question.text.casefold())
        if places is overview.places:  # few of the rows are needed
            numbers = [number for place in siblings for number in overview.numbers[place]]
            found = stored.read(file, sorted(numbers))
        matches = ((row, siblings.get(_place_of(row), {}).get(row["sibling"])) for row in found)
        found = [row | {"match": match} for row, match in matches if match is not None]
    search.total += len(found)
    yield from found


class _Overview(NamedTuple):
    """What is kept of a file between searches."""

    rows: int
    names: frozenset[_Name]
    """What the mappings of its rows have."""
    places: dict[Place, tuple[int, int] | None]
    """The offset and the length of each group; None where the index does not have them."""
    numbers: dict[Place, list[int]]
    """The rows of each group, counted from the first one of the file."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Overview:
        known: dict[tuple[str, ...], Row] = {}
        places: dict[Place, tuple[int, int] | None] = {}
        numbers: dict[Place, list[int]] = {}
        for index, row in enumerate(rows):
            numbers.setdefault(_place_of(row), []).append(index)
            known.setdefault((*row["metrics"], "", *row["rewards"]), row)  # most rows have the same names
            places.setdefault(_place_of(row), (row["offset"], row["length"]) if "offset" in row else None)
        names = {(column, name) for row in known.values() for column in GROUPED for name in row.get(column, ())}
        return cls(len(rows), frozenset(names), places, numbers)


def _place_of(row: Row) -> Place:
    return row["step"], row["group"]


def _with_text(stored: Stored, file: StepFile, places: _Places, wanted: str) -> dict[Place, dict[int, str]]:
    """The siblings whose trajectories contain a text, whatever the case, by their groups, with what is around it."""
    may_contain = may_contain_of(wanted)
    found: dict[Place, dict[int, str]] = {}
    try:
        for place, line in _lines(stored, file, places):
            if may_contain(line):
                for one in _parsed(line)["trajectories"]:
                    said = next((text for text in _texts(one) if wanted in text.casefold()), None)
                    if said is not None:
                        found.setdefault(place, {})[one["sibling"]] = _around(said, wanted)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        fix = "look only into other steps, or restore the file"
        raise DataError(f"cannot search {file.path}", found=f"{type(error).__name__}: {error}", fix=fix) from None
    return found


def _around(text: str, wanted: str) -> str:
    """The place of another text in a text, with some characters on both sides."""
    at = text.casefold().find(wanted)  # casefolded texts have about the same length
    start, end = max(0, at - AROUND), at + len(wanted) + AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


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


def _parsed(line: bytes) -> Any:
    """A stored group without the numbers of its tokens, which take most of the time."""
    short = line
    try:
        for key in _NUMBERS:
            first, *others = short.split(key)
            short = key.join([first, *(one[one.index(b"]") :] for one in others)])
        return json.loads(short.decode("utf-8", "surrogatepass"))
    except ValueError:  # other lists have these names
        return parse_json(line)


def _texts(trajectory: Mapping[str, Any]) -> Iterator[str]:
    """What is searched of a stored trajectory: messages, tool calls and what judges said."""
    for segment in trajectory["segments"]:
        for turn in segment["turns"]:
            for message in turn["messages"]:
                content = message["content"]
                yield content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                for call in message.get("tool_calls", ()):
                    yield call["name"]
                    yield call.get("error") or ""
                    yield from _strings(call["arguments"])
                    yield json.dumps(call["arguments"], ensure_ascii=False)
    for result in trajectory.get("rewards", {}).values():
        yield result.get("text", "")
        yield result.get("error") or ""


def _strings(value: Any) -> Iterator[str]:
    """The texts in the arguments of a call, such as code, in which JSON would escape line breaks."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def may_contain_of(wanted: str) -> Callable[[bytes], bool]:
    """A fast test of a stored line, which is true for all lines that contain a casefolded text, and for some others.

    JSON escapes quotes, backslashes and control characters, and other characters may have another case. The test looks
    for the longest part without these.
    """
    letters = max(_CASELESS.findall(wanted), key=len, default="").encode()
    if letters:
        return lambda line: letters in line or (b"\\" in line and b"\\u" in line)  # the first test is fast
    part = max(_ASCII.findall(wanted), key=len, default="").encode()
    if not part:
        return lambda line: True
    return lambda line: part in line.lower() or (not line.isascii() and any(one in line for one in _FOLDED))


_OVERVIEWS: Recent[_Overview] = Recent(2_000)

__all__ = ["LIMIT", "Question", "find"]
