"""Select stored trajectories by their index, and read only their groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rlcore.errors import DataError, UserError
from rlcore.rollouts.evidence import TOKENS, Tokens, read_tokens
from rlcore.rollouts.index import (
    TIMES,
    UNFINISHED,
    Row,
    evidence_file,
    read_index,
    read_lines,
    read_unfinished,
    records_of,
    step_of,
    unfinished_of,
)
from rlcore.rollouts.records import purpose_and_step, read_group, read_groups, stored_rollouts
from rlcore.types import Group, Trajectory
from rlcore.types.codec import DecodeBytes

_STEPS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Found:
    """A stored trajectory: its row of the index, and its group, which is read when it is asked for."""

    row: Row
    read: Callable[[], Group] = field(repr=False)

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory itself. Raises `DataError` if the group does not have it, or cannot be read."""
        found = [one for one in self.read().trajectories if one.sibling == self.row["sibling"]]
        if not found:
            raise _other_rollouts(self.row)
        return found[0]


class Rollouts:
    """The stored rollouts of a run, or one file of them.

    Args:
        path: the run directory, the folder of its rollouts, or a file
        decode_bytes: what to read in place of the image with a hash; None reads the image
    """

    def __init__(self, path: Path, *, decode_bytes: DecodeBytes | None = None) -> None:
        self.path, self._decode = path, decode_bytes
        self._last: tuple[tuple[Path, int], Group] | None = None
        self._whole: tuple[Path, list[Group]] | None = None

    def files(self, purpose: str | None = None, steps: str = "all") -> list[Path]:
        """The files, ordered by step; the files of steps in progress have names that end in ``.unfinished``.

        Args:
            purpose: ``train`` or ``evaluation``; None takes both
            steps: ``all``, a step such as ``7``, a range such as ``3-9``, or ``newest``, which is preferably its
                evaluation

        Raises:
            DataError: there are none.
            UserError: ``steps`` is none of these.
        """
        growing = [one for one in unfinished_of(self.path) if size_of(one)] if self.path.is_dir() else []
        try:
            found = stored_rollouts(self.path)
        except DataError:
            if not growing:
                raise
            found = []
        if self.path.is_dir():
            found = sorted({*found, *records_of(self.path)})
        files = [(_place(path), path) for path in (*found, *growing)]
        files = [(place, path) for place, path in files if purpose in (None, place[1])]
        if steps == "newest":
            files = [max(files, key=lambda one: (one[0][0], one[0][1] == "evaluation"))] if files else []
        elif steps != "all":
            first, last = range_of(steps)
            files = [(place, path) for place, path in files if first <= place[0] <= last]
        if not files:
            has = sorted({place[0] for place in map(_place, (*found, *growing))})
            shown = f"steps {has[0]} to {has[-1]}" if has else "none"
            raise DataError(f"{self.path} has no such rollouts", found=shown, fix="give --step and --purpose of these")
        return [path for _, path in sorted(files)]

    def select(self, files: Iterable[Path]) -> Iterator[Found]:
        """All trajectories of files, in their order."""
        for path in files:
            if is_unfinished(path):
                for row, group in read_unfinished(path, decode_bytes=self._decode):
                    yield Found(row, partial(_same, group))
            else:
                for row in read_index(path):
                    yield Found(row, partial(self.group, path, row))

    def group(self, path: Path, row: Row) -> Group:
        """The group of a row in the index of a file. Raises `DataError` if it cannot be read."""
        if purpose_and_step(path)[1] not in (-1, row["step"]):  # carried over from an earlier step
            path = path.with_name(f"train-{row['step']:06d}.jsonl.gz")
            rows = read_index(path) if path.exists() else []
            here = [one for one in rows if (one["step"], one["group"]) == (row["step"], row["group"])]
            if not here:
                raise DataError(f"the group {row['group']} of step {row['step']} is not stored", found=f"no {path}")
            row = here[0]
        if "offset" not in row:
            if self._whole is None or self._whole[0] != path:
                self._whole = path, list(read_groups(path, decode_bytes=self._decode))
            if not 0 <= row["group"] < len(self._whole[1]):
                raise _other_rollouts(row)
            return self._whole[1][row["group"]]
        key = path, row["offset"]
        if self._last is None or self._last[0] != key:  # the siblings of a group follow each other
            self._last = key, read_group(path, row["offset"], decode_bytes=self._decode)
        return self._last[1]

    def tokens(self, path: Path) -> Tokens:
        """The values of the trained tokens of the step of a file. Raises `DataError` if there are none."""
        return read_tokens(evidence_file(path, TOKENS))

    def times(self, path: Path) -> list[Row]:
        """The times of the trajectories of a file; empty if there are none."""
        return read_lines(evidence_file(path, "times.jsonl.gz"), TIMES)


def range_of(steps: str) -> tuple[int, int]:
    """The first and the last step of ``7`` or ``3-9``. Raises `UserError` if it is neither."""
    match = _STEPS.fullmatch(steps)
    if match is None:
        raise UserError("--step must be a step, a range or all", found=repr(steps[:40]), fix="--step 7, or 3-9")
    return int(match[1]), int(match[2] or match[1])


def _other_rollouts(row: Row) -> DataError:
    return DataError(
        "the index belongs to other rollouts",
        found=f"a row of group {row['group']}, sibling {row['sibling']}",
        fix="remove the file from evidence/; the rows are then computed from the rollouts",
    )


def is_unfinished(path: Path) -> bool:
    """Whether a file has the groups of a step in progress."""
    return path.suffix == UNFINISHED


def _place(path: Path) -> tuple[int, str]:
    """Sorts by step, and the evaluation of a step before its training."""
    purpose, step = purpose_and_step(step_of(path))
    return step, purpose


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if it is gone, because its step has ended, or is a link to nothing."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _same(group: Group) -> Group:
    return group


__all__ = ["Found", "Rollouts", "is_unfinished", "range_of", "size_of"]
