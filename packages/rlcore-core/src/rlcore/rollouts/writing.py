"""Write the rollouts of a step.

Groups are appended to the unfinished file as they end. When the step ends, their bytes are copied into the record in
the order of its tasks, so that the record does not depend on times: a resumed run has the same files as one without
interruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.atomic_files import told, whole
from rlcore.rollouts.index import INDEX, UNFINISHED, Row, evidence_file, rows_of, write_lines
from rlcore.rollouts.records import EVIDENCE, blobs_of, line_of, member_of, purpose_and_step
from rlcore.rollouts.responses import RESPONSES, responses_of
from rlcore.types import Group


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
        write_lines(evidence_file(path, RESPONSES), responses_of(groups))
    if unfinished is not None:
        unfinished.close(remove=True)


__all__ = ["Unfinished", "write_record"]
