"""The notes on the steps of a stored episode: which term of the reward counts how much."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from rlcore.report import Table, TurnNote
from rlcore.types import Task, Trajectory

TERM = "term/"
"""Prefix of the arrays with the terms of the reward."""


def turn_notes(task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """A table of the terms for each step; None for a trajectory without terms."""
    weights = task.fields.get("terms")
    if not isinstance(weights, Mapping) or not weights or len(trajectory.segments) != 1:
        return None
    arrays = trajectory.segments[0].arrays
    names = [name for name in weights if f"{TERM}{name}" in arrays]
    values = {name: struct.unpack(f"={len(arrays[TERM + name])}f", arrays[TERM + name].data) for name in names}
    return [
        TurnNote(
            tables=(
                Table(
                    columns=("term", "weight", "value", "in the reward"),
                    rows=tuple(
                        (name, weights[name], values[name][t], weights[name] * values[name][t]) for name in names
                    ),
                ),
            )
        )
        for t, turn in enumerate(trajectory.turns)
        if turn.kind == "policy"
    ]


__all__ = ["TERM", "turn_notes"]
