"""The extreme tokens of a training step, and the times of its tools."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import compress, count, islice
from typing import Any

from rlcore.errors import DataError
from rlcore.rollouts.evidence import Tokens, ratio

from rlcore_view.errors import NotFoundError
from rlcore_view.stored import StepFile, Stored
from rlcore_view.tokens import values_in

MOST_TOKENS = 10_000_000
"""Trained tokens of a step among which the extreme ones are looked for."""
CHUNK = 1 << 18
"""Values that are read at a time."""


def extremes(stored: Stored, file: StepFile) -> dict[str, Any]:
    """The tokens with the highest ratio and the lowest log-probability of a step, and how long its tools took."""
    tokens: list[dict[str, Any]] = []
    if file.purpose == "train" and not file.unfinished:
        with suppress(DataError):  # no values are stored
            tokens = list(_tokens(stored, values_in(stored.tokens_file(file.step))))
    return {"tokens": tokens, "tools": _tools(stored, file)}


def _tokens(stored: Stored, values: Tokens) -> Iterator[dict[str, Any]]:
    sequences = list(values.sequences())
    if not sequences or sequences[-1][1].stop > MOST_TOKENS:
        return
    for name, shown, better in ("log_ratio", "ratio", max), ("logprob", "logprob", min):
        if name not in values.names:
            continue
        value, at = better(_of_chunks(values, name, sequences[-1][1].stop, better), default=(0.0, -1))
        where, rows = next((where, rows) for where, rows in sequences if at < rows.stop)
        with suppress(DataError, NotFoundError):
            position = _position(stored, where, at - rows.start) if at >= 0 else None
            if position is not None:
                place = {part: where[part] for part in ("step", "group", "sibling", "segment")}
                yield {
                    "column": shown,
                    "value": ratio(value) if shown == "ratio" else value,
                    **place,
                    "token": position,
                }


def _of_chunks(values: Tokens, name: str, total: int, better: Callable[..., float]) -> Iterator[tuple[float, int]]:
    """The extreme value of each part of a column, with its place in the column."""
    for start in range(0, total, CHUNK):
        part = values.part(name, slice(start, start + CHUNK))
        if finite := [value for value in part if math.isfinite(value)]:
            yield (value := better(finite)), start + part.index(value)


def _position(stored: Stored, where: dict[str, int], number: int) -> int | None:
    """The position of a trained token of a sequence in its segment; None if the rollouts are others."""
    group = stored.group(stored.file("train", where["step"]), where["group"]).group
    one = next((each for each in group.trajectories if each.sibling == where["sibling"]), None)
    if one is None or where["segment"] >= len(one.segments):
        return None
    return next(islice(compress(count(), one.segments[where["segment"]].loss_mask), number, None), None)


def _tools(stored: Stored, file: StepFile) -> dict[str, Any] | None:
    times = stored.times(file, "kind", "tool")
    if not times:
        return None
    slowest = max(times, key=lambda row: row["seconds"])
    mean = sum(row["seconds"] for row in times) / len(times)
    return {"count": len(times), "mean": mean} | {
        name: slowest[name] for name in ("name", "seconds", "group", "sibling")
    }


__all__ = ["extremes"]
