"""The table of trained tokens of ``rlcore data show --tokens COLUMN``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlcore.console.escaping import printable
from rlcore.errors import DataError, UserError, did_you_mean
from rlcore.rollouts.decoding import Decode
from rlcore.rollouts.evidence import Tokens, ratio
from rlcore.rollouts.reading import Found, Rollouts
from rlcore.rollouts.records import purpose_and_step
from rlcore.runs.tokenizer import decoder_of
from rlcore.types import Segment

AROUND = 6
"""Tokens that are shown before and after one."""


def token_lines(
    rollouts: Rollouts, files: Sequence[Path], chosen: Sequence[Found], column: str, count: int, lowest: bool
) -> Iterator[str]:
    """The trained tokens with the highest or lowest numbers in a column.

    Args:
        rollouts: the rollouts
        files: their files
        chosen: the trajectories whose tokens are compared
        column: a column of `Tokens`; ``ratio``, of the probabilities in the last update and before the first; or
            ``gap``, the log-probability of the learner minus that of the engine
        count: number of tokens
        lowest: whether the lowest come first

    Raises:
        DataError: no values are stored.
        UserError: there is no such column.
    """
    trained = [one for one in chosen if one.row["purpose"] == "train"]
    by_place = {(one.row["step"], one.row["group"], one.row["sibling"]): one for one in trained}
    files = [path for path in files if purpose_and_step(path)[0] == "train"] or files
    decode = decoder_of(files[0])
    for path in files:
        tokens = rollouts.tokens(path)
        columns = [*tokens.names, "gap", *(["ratio"] if "log_ratio" in tokens.names else [])]
        if column == "ratio" and "log_ratio" not in tokens.names:
            yield f"{path.name}: one update of each token, so every ratio is 1; gap compares learner and engine"
            continue
        if column not in columns:
            fix = did_you_mean(column, columns) or f"use one of {', '.join(columns)}"
            raise UserError(f"there is no column {column!r} of tokens", where="--tokens", fix=fix)
        rows = list(_rows(tokens, by_place, column))
        rows.sort(key=lambda row: row[0], reverse=not lowest)
        yield f"{path.name}: {'lowest' if lowest else 'highest'} {column} of {len(rows):,} trained tokens"
        for value, one, segment, position, place in rows[:count]:
            others = ", ".join(f"{name} {tokens.part(name, slice(place, place + 1))[0]:.4g}" for name in tokens.names)
            where = f"step {one.row['step']}, group {one.row['group']}, sibling {one.row['sibling']}"
            yield f"  {value:10.4g}  {where}, token {position}: {_around(segment, position, decode)}"
            yield f"{'':14}{others}"


def _rows(
    tokens: Tokens, by_place: dict[tuple[int, int, int], Found], column: str
) -> Iterator[tuple[float, Found, Segment, int, int]]:
    """The number of each token, with its trajectory, its segment, its position there, and its row of the file."""
    stored = tokens["logprob" if column == "gap" else "log_ratio" if column == "ratio" else column]
    for place, part in tokens.sequences():
        one = by_place.get((place["step"], place["group"], place["sibling"]))
        if one is None:
            continue
        segments, number = one.trajectory.segments, place["segment"]
        segment = segments[number] if 0 <= number < len(segments) else Segment()
        if segment.sampled_tokens != place["count"]:
            raise DataError("the values of tokens belong to other rollouts", found=f"{place}")
        written = (position for position, mask in enumerate(segment.loss_mask) if mask)
        for number, (position, value) in enumerate(zip(written, stored[part], strict=True), start=part.start):
            if column == "gap":
                value -= segment.logprobs[position]
            if not math.isnan(value):
                yield ratio(value) if column == "ratio" else value, one, segment, position, number


def _around(segment: Segment, position: int, decode: Decode | None) -> str:
    ids = segment.token_ids
    if decode is None:
        return f"id {ids[position]}"
    before, after = ids[max(0, position - AROUND) : position], ids[position + 1 : position + 1 + AROUND]
    return printable(f"…{decode(before.tolist())}»{decode([ids[position]])}«{decode(after.tolist())}…")


__all__ = ["token_lines"]
