"""Read ``metrics.jsonl``, and find gaps in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore.console.wording import counted
from rlcore.json_files import open_regular

STEPS_COVERED = "steps_covered"
"""Metric of trainers that do not log every step: the number of steps up to a line's own that the line describes."""
Line = tuple[dict[str, Any] | None, bytes]
"""A line as an object, None if it is damaged, and its bytes without the newline."""


def metrics_lines(path: Path) -> list[Line]:
    """The lines of a ``metrics.jsonl``, including damaged ones; empty if there is no file."""
    content = b""
    if path.exists():
        with open_regular(path) as file:
            content = file.read()
    return [(_parsed(raw), raw) for raw in content.split(b"\n") if raw]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a ``metrics.jsonl``; damaged lines, for example after a kill, are skipped."""
    return [row for row, _ in metrics_lines(path) if row is not None]


def metrics_gap(lines: Sequence[Line], *, last: int) -> str | None:
    """A description of damaged lines and of steps without a line, from step 1 to ``last``; None if there are none."""
    rows = [row for row, _ in lines if row is not None and 1 <= row["step"] <= last]
    missing = _between(sorted((row["step"] - _covered(row), row["step"]) for row in rows), last)
    damaged = sum(row is None for row, _ in lines)
    found = [f"no line for {_listed(missing)}"] if missing else []
    found += [f"{counted(damaged, 'damaged line')}"] if damaged else []
    return ", ".join(found) or None


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("step"), int) else None


def _covered(row: dict[str, Any]) -> int:
    """The number of steps that a line describes."""
    count = row.get(STEPS_COVERED)
    return int(count) if isinstance(count, (int, float)) and 1 <= count <= row["step"] else 1


def _between(ranges: Sequence[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """The first and last number of each range from 1 to ``last`` that is in none of the sorted ranges.

    Args:
        ranges: the number before the first one of each range, and its last one
        last: the last number
    """
    missing, end = [], 0
    for before, after in [*ranges, (last, last)]:
        if before > end:
            missing.append((end + 1, before))
        end = max(end, after)
    return missing


def _listed(ranges: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:4]]
    if more := len(ranges) - len(shown):
        shown.append(f"{more} more")
    many = len(ranges) > 1 or ranges[0][0] != ranges[0][1]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
    return f"steps {listed}" if many else f"step {listed}"
