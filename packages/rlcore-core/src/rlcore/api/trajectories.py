"""Trajectories of a run or of an evaluation."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcore.api.frames import pandas_frame, polars_frame
from rlcore.report.notebook import gallery
from rlcore.rollouts.index import Row
from rlcore.rollouts.responses import table_of
from rlcore.types import Group, Trajectory

if TYPE_CHECKING:
    import pandas
    import polars


class Stored(NamedTuple):
    """A group and where it was sampled."""

    purpose: str
    step: int
    group: Group


class Trajectories:
    """Trajectories in stored order, read again each time. Iterate over them, or over their `groups`.

    Args:
        read: returns the groups
        table: returns the rows of `rlcore.rollouts.responses.table_of`, if there is a faster way than to compute them
    """

    def __init__(self, read: Callable[[], Iterator[Stored]], table: Callable[[], Iterator[Row]] | None = None) -> None:
        self._read, self._table = read, table or self._computed

    def __iter__(self) -> Iterator[Trajectory]:
        for group in self.groups():
            yield from group.trajectories

    def groups(self) -> Iterator[Group]:
        """The groups: a task and its trajectories."""
        return (stored.group for stored in self._read())

    def rows(self) -> Iterator[dict[str, Any]]:
        """A flat row for each trajectory, without its tokens. ``reward`` is None if it is not scored.

        ``environment`` is present in runs with several, and ``role`` in episodes with several.
        """
        return map(_flat, self._table())

    def _computed(self) -> Iterator[Row]:
        return chain.from_iterable(table_of(purpose, step, [group]) for purpose, step, group in self._read())

    def _repr_html_(self) -> str:
        return gallery(self.groups()) or f"<code>{html.escape(repr(self))}</code>"

    def to_pandas(self) -> pandas.DataFrame:
        """The `rows` as a data frame. Raises `NotInstalledError` without pandas."""
        return pandas_frame(list(self.rows()))

    def to_polars(self) -> polars.DataFrame:
        """The `rows` as a data frame. Raises `NotInstalledError` without polars."""
        return polars_frame(list(self.rows()))


def _flat(row: Row) -> dict[str, Any]:
    return {
        "purpose": row["purpose"],
        "step": row["step"],
        **({"environment": row["environment"]} if row["environment"] else {}),
        "task_id": row["task"],
        "sibling": row["sibling"],
        **({"role": row["role"]} if "role" in row else {}),
        "reward": row["reward"],
        **{f"reward/{id}": value for id, value in row["rewards"].items()},
        **{name: row[name] for name in ("stop", "failure", "turns", "tokens", "images")},
        "final_response": row["response"],
    }


__all__ = ["Stored", "Trajectories"]
