"""The index of a file of rollouts: a row for each trajectory, with the place of its group and what became of it.

::

    runs/NAME/
      rollouts/train-000007.jsonl.gz          the groups, one gzip member each
      evidence/train-000007.index.jsonl.gz    their index
      evidence/.train-000007.unfinished       the groups of a step that has not ended, in the order of their ends

Groups are appended to the unfinished file as they end. When the step ends, their bytes are copied into the record in
the order of its tasks, so that the record does not depend on times: a resumed run has the same files as one without
interruption.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.atomic_files import told, whole
from rlcore.errors import DataError
from rlcore.json_files import json_lines, open_regular, parse_json
from rlcore.plugin_calls import value_text
from rlcore.redaction import without_known
from rlcore.runs.records import (
    EVIDENCE,
    SharedBlobs,
    blobs_of,
    group_of,
    line_of,
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


class Unfinished:
    """The groups of a step in progress, in the order in which they end.

    Args:
        run: the run directory
        purpose: ``train`` or ``evaluation``
        step: the step
    """

    def __init__(self, run: Path, purpose: str, step: int) -> None:
        self.purpose = purpose
        self.path = run / EVIDENCE / f".{purpose}-{step:06d}{UNFINISHED}"
        self._known: dict[int, tuple[Group, int, int]] = {}
        with told(self.path):
            self.path.parent.mkdir(exist_ok=True)
            self._file = self.path.open("wb")
        self._blobs = blobs_of(self.path)

    def add(self, group: Group) -> None:
        """Append a group.

        Raises:
            UserError: the file cannot be written.
        """
        member = member_of(line_of(group, self._blobs))
        with told(self.path):
            offset = self._file.tell()
            self._file.write(member)
            self._file.flush()  # so that readers see whole groups
        self._known[id(group.trajectories)] = group, offset, len(member)

    def members(self, groups: Iterable[Group]) -> Iterator[bytes]:
        """The gzip members of groups in this order. A group that was not added, as of another process, is encoded."""
        with told(self.path), self.path.open("rb") as file:
            for group in groups:
                known = self._known.get(id(group.trajectories))
                if known is None or known[0].task is not group.task:
                    yield member_of(line_of(group, self._blobs))
                else:
                    file.seek(known[1])
                    yield file.read(known[2])

    def close(self, *, remove: bool = False) -> None:
        """Close the file, and remove it if its groups are in the record. A second call does nothing."""
        self._known.clear()
        self._file.close()
        if remove:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def write_record(
    path: Path,
    groups: Sequence[Group],
    *,
    unfinished: Unfinished | None = None,
    notes: Sequence[Mapping[str, Any]] = (),
    brought: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a compressed file of rollouts in a run, with its index. Equal groups and notes give equal bytes.

    Args:
        path: of the rollouts
        groups: all groups of the step
        unfinished: has the bytes of groups that have been written already
        notes: what became of each group, for its rows; empty for an evaluation. ``excluded`` is a list of siblings
        brought: rows of groups of earlier steps that are trained in this one

    Raises:
        UserError: a file cannot be written.
    """
    purpose, step = purpose_and_step(path)
    blobs, rows, offset = blobs_of(path), list[Row](), 0
    members = unfinished.members(groups) if unfinished is not None else (member_of(line_of(g, blobs)) for g in groups)
    with whole(path) as file:
        for place, (group, member) in enumerate(zip(groups, members, strict=True)):
            file.write(member)
            known = dict(notes[place]) if notes else {}
            where = {"purpose": purpose, "step": step, "group": place}
            rows += rows_of(group, where, known, {"offset": offset, "length": len(member)})
            offset += len(member)
    if step >= 0:
        write_lines(evidence_file(path, INDEX), [*rows, *brought])
    if unfinished is not None:
        unfinished.close(remove=True)


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


LARGEST_INDEX = 1_000_000_000
"""Limit of an index in bytes."""
ROW: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("purpose", "task", "environment", "stop"), str),
    **dict.fromkeys(("step", "group", "sibling", "tokens", "turns"), int),
    **dict.fromkeys(("rewards", "metrics"), dict),
    "reward": (int, float, type(None)),
}
"""The columns that each row of an index has, with their types."""
OPTIONAL: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("offset", "length", "trained_step", "trained_version", "staleness"), int),
    **dict.fromkeys(("fate", "why"), str),
    **dict.fromkeys(("mean", "spread"), (int, float)),
    "sampling": dict,
    "versions": list,
}
TIMES: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("group", "sibling"), int),
    **dict.fromkeys(("kind", "name"), str),
    **dict.fromkeys(("start", "seconds"), (int, float)),
}


def _check_row(row: Any, columns: Mapping[str, type | tuple[type, ...]]) -> None:
    """Raise `ValueError` unless a row has these columns."""
    if not isinstance(row, dict):
        raise ValueError("a line is not an object")
    for name, kind in {**columns, **{name: OPTIONAL[name] for name in OPTIONAL if name in row}}.items():
        if name not in row or not isinstance(row[name], kind):
            raise ValueError(f"the column {name!r} is {value_text(row.get(name))}")
    if row.get("offset", 0) < 0 or ("offset" in row) != ("length" in row) or len(row.get("versions", (0, 0))) != 2:
        raise ValueError("a place or a range of versions is not valid")


def read_lines(path: Path, columns: Mapping[str, type | tuple[type, ...]]) -> list[Row]:
    """The rows of a file of `write_lines`; empty if there is none. Raises `DataError` if they lack columns."""
    if not path.exists():
        return []
    try:
        with open_regular(path) as raw, gzip.open(raw) as file:
            rows: list[Row] = []
            for _, line in json_lines(file):
                rows.append(parse_json(line))
                _check_row(rows[-1], columns)
                if file.tell() > LARGEST_INDEX:
                    raise ValueError(f"more than {LARGEST_INDEX:,} bytes")
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
    own = [row for row in rows if "offset" in row]
    if rows and not own:  # a step that only trained on groups of earlier steps has no record
        return rows
    if own and path.exists() and max(row["offset"] + row["length"] for row in own) == path.stat().st_size:
        return rows
    purpose, step = purpose_and_step(path)
    return [
        row
        for place, group in enumerate(read_groups(path, decode_bytes=str.encode))  # no row needs the images
        for row in rows_of(group, {"purpose": purpose, "step": step, "group": place}, {}, {})
    ]


def read_unfinished(path: Path, *, decode_bytes: DecodeBytes | None = None) -> list[tuple[Row, Group]]:
    """The trajectories of a step in progress so far, each with its group. A group that is being written is left out."""
    purpose, step = purpose_and_step(step_of(path))
    found: list[tuple[Row, Group]] = []
    offset, blobs = 0, blobs_of(path)
    with open_regular(path) as file, suppress(DataError, OSError, ValueError, zlib.error):  # of a killed process
        for place, (line, length) in enumerate(members(file)):
            group = group_of(line, decode_bytes or SharedBlobs(blobs), f"{path} at byte {offset:,}")
            where = {"purpose": purpose, "step": step, "group": place}
            found += [(row, group) for row in rows_of(group, where, {}, {"offset": offset})]
            offset += length
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
            **_summary(one),
            **shared,
            **({"excluded": True} if one.sibling in excluded else {}),
            **place,
        }


def _summary(one: Trajectory) -> Row:
    policy = [turn for turn in one.turns if turn.kind == "policy"]
    versions = [turn.policy_version for turn in policy]
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
    "TIMES",
    "Row",
    "Unfinished",
    "evidence_file",
    "read_index",
    "read_lines",
    "read_unfinished",
    "unfinished_of",
    "write_lines",
    "write_record",
]
