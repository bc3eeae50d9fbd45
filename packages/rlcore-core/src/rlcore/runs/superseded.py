"""Move the results of later steps aside when a run is resumed from an earlier one.

::

    superseded/001-from-step-20/     of the first resume of the run, which continued after step 20
      checkpoints/  rollouts/  evidence/  metrics.jsonl
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from rlcore.atomic_files import told, whole
from rlcore.console.wording import counted
from rlcore.rollouts.records import EVIDENCE
from rlcore.runs.checkpoints import checkpoints_of
from rlcore.runs.metrics import metrics_lines

FOLDER = "superseded"
_RECORD = re.compile(r".+-([0-9]{6,})\.[a-z.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Results of a run that were moved aside."""

    folder: Path
    checkpoints: int
    rollouts: int
    lines: int
    """Lines of metrics, including damaged ones."""

    def __str__(self) -> str:
        parts = [(self.checkpoints, "checkpoint"), (self.rollouts, "rollout file"), (self.lines, "line")]
        shown = [counted(number, noun) for number, noun in parts if number]
        return f"{', '.join(shown)}{' of metrics' if self.lines else ''}"

    def __bool__(self) -> bool:
        return bool(self.checkpoints or self.rollouts or self.lines)


def supersede(run: Path, step: int, *, number: int) -> Superseded:
    """Move the results of later steps, and damaged lines of metrics, to a folder in the run.

    It can be interrupted and repeated. Checkpoints are moved first, the last one first, so that the newest remaining
    one always has its metrics.

    Args:
        run: the run directory
        step: the step to continue after; -1 for a run that starts again
        number: of the resume, so that each has its own folder

    Raises:
        UserError: a file cannot be moved.
    """
    aside = run / FOLDER / f"{number:03d}-from-{f'step-{step}' if step >= 0 else 'the-start'}"
    checkpoints = [path for path in reversed(checkpoints_of(run)) if int(path.name) > step]
    for path in checkpoints:
        _move(path, aside / "checkpoints")
    rollouts = [path for path in sorted((run / "rollouts").iterdir()) if _step_of(path) > step]
    for path in rollouts:
        _move(path, aside / "rollouts")
    for path in sorted((run / EVIDENCE).glob("*")):
        if _step_of(path) > step:
            _move(path, aside / EVIDENCE)
    lines = _cut_metrics(run / "metrics.jsonl", step, aside)
    return Superseded(folder=aside, checkpoints=len(checkpoints), rollouts=len(rollouts), lines=lines)


def _cut_metrics(path: Path, step: int, aside: Path) -> int:
    """Move later and damaged lines, and return their number. They are written to the new place first."""
    kept: list[bytes] = []
    moved: list[bytes] = []
    for row, raw in metrics_lines(path):
        (kept if row is not None and row["step"] <= step else moved).append(raw + b"\n")
    if moved:
        _write(_free(aside / path.name, b"".join(moved)), b"".join(moved))
    if path.exists() and path.read_bytes() != b"".join(kept):
        _write(path, b"".join(kept))
    return len(moved)


def _step_of(record: Path) -> int:
    match = _RECORD.fullmatch(record.name)
    return int(match[1]) if match is not None else -1


def _move(path: Path, folder: Path) -> None:
    target = _free(folder / path.name)
    with told(target):
        folder.mkdir(parents=True, exist_ok=True)
        path.rename(target)


def _write(path: Path, content: bytes) -> None:
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as file:
        file.write(content)


def _free(path: Path, content: bytes | None = None) -> Path:
    """The path, or the first numbered one, at which nothing else is."""
    paths = chain([path], (path.with_name(f"{path.name}.{number}") for number in count(1)))
    return next(free for free in paths if not free.exists() or (content and free.read_bytes() == content))
