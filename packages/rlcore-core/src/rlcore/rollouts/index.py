"""The index of a file of rollouts: a row for each trajectory, with the place of its group and what became of it.

::

    runs/NAME/
      rollouts/train-000007.jsonl.gz          the groups, one gzip member each
      evidence/train-000007.index.jsonl.gz    their index
      evidence/.train-000007.unfinished       the groups of a step that has not ended, in the order of their ends
"""

from __future__ import annotations

import gzip
import json
import math
import os
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.atomic_files import told, whole
from rlcore.errors import DataError
from rlcore.json_files import open_regular, parse_json
from rlcore.plain_json import number
from rlcore.plugin_calls import value_text
from rlcore.redaction import without_known
from rlcore.rollouts.records import (
    EVIDENCE,
    SharedBlobs,
    blobs_of,
    group_of,
    member_of,
    members,
    purpose_and_step,
    read_groups,
    record_name,
)
from rlcore.types import Group, Trajectory
from rlcore.types.codec import DecodeBytes

Row = dict[str, Any]
"""A trajectory: where it is, how it ended, and what became of its group."""
LONGEST_FAILURE = 300
INDEX, UNFINISHED = "index.jsonl.gz", ".unfinished"


def evidence_file(path: Path, kind: str) -> Path:
    """The file of a kind that belongs to a file of rollouts of a run."""
    return path.parent.parent / EVIDENCE / f"{record_name(path)}.{kind}"


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as compressed JSON lines, atomically. Raises `UserError` if that fails."""
    with told(path):
        path.parent.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(row, ensure_ascii=False, default=value_text)}\n" for row in rows)
    with whole(path) as file:
        file.write(member_of(without_known(text).encode("utf-8", "surrogatepass")))


LARGEST_INDEX = 200_000_000
"""Limit of an index in bytes."""
LARGEST_COUNT = 2**62
Check = Callable[[Any], bool]
_NESTED = {dict, list}


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST_COUNT


def _is_number(value: Any) -> bool:
    return type(value) is float or number(value) is not None


def _is_flat(value: Any) -> bool:
    return type(value) is dict and _NESTED.isdisjoint(map(type, value.values()))


ROW: Mapping[str, Check] = {
    **dict.fromkeys(("purpose", "task", "environment", "stop"), _is_text),
    **dict.fromkeys(("step", "group", "sibling", "tokens", "turns"), _is_count),
    **dict.fromkeys(("rewards", "metrics"), _is_flat),
    "reward": lambda value: value is None or _is_number(value),
}
"""The columns that each row of an index has, with their checks."""
OPTIONAL: Mapping[str, Check] = {
    **dict.fromkeys(("offset", "length", "trained_step", "trained_version", "staleness"), _is_count),
    **dict.fromkeys(("fate", "why", "role"), _is_text),
    **dict.fromkeys(("mean", "spread"), _is_number),
    "sampling": _is_flat,
    "versions": lambda value: type(value) is list and len(value) == 2 and all(map(_is_count, value)),
    "failure": lambda value: value is None or _is_text(value),
}
TIMES: Mapping[str, Check] = {
    **dict.fromkeys(("group", "sibling"), _is_count),
    **dict.fromkeys(("kind", "name"), _is_text),
    **dict.fromkeys(("start", "seconds"), _is_number),
}


def _check_row(row: Any, columns: Mapping[str, Check]) -> None:
    """Raise `ValueError` unless a row has these columns, and columns of `OPTIONAL` only with valid values."""
    if type(row) is not dict:
        raise ValueError("a line is not an object")
    for name, is_valid in columns.items():
        if name not in row or not is_valid(row[name]):
            raise ValueError(f"the column {name!r} is {value_text(row.get(name))}")
    for name in row.keys() & OPTIONAL.keys():
        if not OPTIONAL[name](row[name]):
            raise ValueError(f"the column {name!r} is {value_text(row[name])}")
    if ("offset" in row) != ("length" in row):
        raise ValueError("a place is not valid")


def read_lines(
    path: Path, columns: Mapping[str, Check], chosen: Callable[[list[bytes]], Iterable[bytes]] = iter
) -> list[Row]:
    """The rows of a file of `write_lines`; empty if there is no file.

    Args:
        path: the file
        columns: what every row has
        chosen: the lines that are parsed

    Raises:
        DataError: the file is damaged, or the rows lack columns.
    """
    if not path.exists():
        return []
    try:
        with open_regular(path) as raw, gzip.open(raw) as file:
            content = file.read(LARGEST_INDEX + 1)
        if len(content) > LARGEST_INDEX:
            raise ValueError(f"more than {LARGEST_INDEX:,} bytes")
        lines = [line for line in content.split(b"\n") if line]  # texts in JSON have no line breaks
        rows: list[Row] = parse_json(b"[%b]" % b",".join(chosen(lines)))  # three times as fast as each line alone
        for row in rows:
            _check_row(row, columns)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"cannot read {path}", found=str(error), fix="restore the file, or remove it") from None
    return rows


def read_index(path: Path) -> list[Row]:
    """The rows of a file of rollouts, computed from the groups where it has no index, as in runs of earlier versions.

    Rows of groups that were brought from an earlier step have the step in which they were sampled, and no offset.

    Raises:
        DataError: a file is damaged.
    """
    rows = read_lines(evidence_file(path, INDEX), ROW) if path.parent.name == "rollouts" else []
    return rows if is_index_of(path, rows) else _computed(path)


def is_index_of(path: Path, rows: Sequence[Row]) -> bool:
    """Whether rows of an index belong to a file of rollouts: the last group ends where the file ends."""
    end = max((row["offset"] + row["length"] for row in rows if "offset" in row), default=0)
    if not end:  # a step that only trained on groups of earlier steps has no record
        return bool(rows)
    return path.exists() and end == path.stat().st_size


def _computed(path: Path) -> list[Row]:
    purpose, step = purpose_and_step(path)
    with suppress(DataError, OSError, ValueError, zlib.error):
        rows = [row for _, rows in groups_from(path, decode_bytes=str.encode) for row in rows]  # no row needs images
        if rows and rows[-1]["offset"] + rows[-1]["length"] == path.stat().st_size:
            return rows
    return [  # without places, of a file that is not compressed, or was compressed by another program
        row
        for place, group in enumerate(read_groups(path, decode_bytes=str.encode))
        for row in rows_of(group, {"purpose": purpose, "step": step, "group": place}, {}, {})
    ]


def groups_from(
    path: Path, offset: int = 0, first: int = 0, *, decode_bytes: DecodeBytes
) -> Iterator[tuple[Group, list[Row]]]:
    """The groups of a compressed file from an offset on, each with its rows.

    Args:
        path: a file of rollouts, or one that grows
        offset: the place of the first group
        first: its number
        decode_bytes: what to read in place of the image with a hash

    Raises:
        OSError, ValueError, zlib.error, DataError: the rest is damaged, such as what a killed process wrote last.
    """
    purpose, step = purpose_and_step(step_of(path))
    with open_regular(path) as file:
        file.seek(offset)
        for number, (line, length) in enumerate(members(file), start=first):
            group = group_of(line, decode_bytes, f"{path} at byte {offset:,}")
            where = {"purpose": purpose, "step": step, "group": number}
            yield group, list(rows_of(group, where, {}, {"offset": offset, "length": length}))
            offset += length


def read_unfinished(path: Path, *, decode_bytes: DecodeBytes | None = None) -> list[tuple[Row, Group]]:
    """The trajectories of a step in progress so far, each with its group. A group that is being written is left out."""
    found: list[tuple[Row, Group]] = []
    with suppress(DataError, OSError, ValueError, zlib.error):  # of a killed process
        for group, rows in groups_from(path, decode_bytes=decode_bytes or SharedBlobs(blobs_of(path))):
            found += [(row, group) for row in rows]
    return found


def step_of(path: Path) -> Path:
    """The path of a file of a step in progress with the name of its step; the path of another file as it is."""
    name = path.name
    return path.with_name(name.removeprefix(".").removesuffix(UNFINISHED)) if name.endswith(UNFINISHED) else path


def records_of(run: Path) -> list[Path]:
    """The records of a run by its indexes, including those of steps without a record."""
    names = (path.name.removesuffix(INDEX) for path in (run / EVIDENCE).glob(f"[!.]*-*.{INDEX}"))
    return [run / "rollouts" / f"{name}jsonl.gz" for name in names]


def unfinished_of(run: Path) -> list[Path]:
    """The files of steps in progress of a run, ordered by step."""
    return sorted((run / EVIDENCE).glob(f".*{UNFINISHED}"), key=os.fspath)


def rows_of(
    group: Group, where: Mapping[str, Any], notes: Mapping[str, Any], place: Mapping[str, int]
) -> Iterator[Row]:
    """A row for each trajectory of a group.

    Args:
        group: the group
        where: its purpose, step and number
        notes: what became of it
        place: its offset and length in the file
    """
    rewards = [one.reward for one in group.trajectories if one.reward is not None and math.isfinite(one.reward)]
    excluded = set(notes.get("excluded", ()))
    shared = {name: value for name, value in notes.items() if name != "excluded"}
    if rewards:
        shared |= {"mean": statistics.fmean(rewards), "spread": statistics.pstdev(rewards)}
    for one in group.trajectories:
        yield {
            **where,
            "sibling": one.sibling,
            "task": group.task.id,
            "environment": group.task.environment,
            **({"role": one.role} if one.role else {}),
            **_summary(one),
            **shared,
            **({"excluded": True} if one.sibling in excluded else {}),
            **place,
        }


def _summary(one: Trajectory) -> Row:
    policy = [turn for turn in one.turns if turn.kind == "policy"]
    versions = [span.version for turn in policy for span in turn.spans]
    found: Row = {
        "reward": one.reward,
        "stop": str(one.stop),
        "failure": str(one.failure)[:LONGEST_FAILURE] if one.failure is not None else None,
        "tokens": one.sampled_tokens,
        "turns": len(policy),
        "rewards": {id: result.value for id, result in one.rewards.items()},
        "metrics": dict(one.metrics),
    }
    if versions:
        found["versions"] = [min(versions), max(versions)]
    if one.sampling is not None:
        names = ("temperature", "top_p", "top_k", "max_new_tokens", "seed")
        found["sampling"] = {name: getattr(one.sampling, name) for name in names}
    return found


__all__ = [
    "INDEX",
    "ROW",
    "TIMES",
    "UNFINISHED",
    "Row",
    "evidence_file",
    "groups_from",
    "is_index_of",
    "read_index",
    "read_lines",
    "read_unfinished",
    "records_of",
    "rows_of",
    "step_of",
    "unfinished_of",
    "write_lines",
]
