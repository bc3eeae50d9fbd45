"""Trajectories of a run or of an evaluation."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcore.api.frames import pandas_frame, polars_frame
from rlcore.report.notebook import gallery
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
    """Trajectories in stored order, read again each time. Iterate over them, or over their `groups`."""

    def __init__(self, read: Callable[[], Iterator[Stored]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Trajectory]:
        for group in self.groups():
            yield from group.trajectories

    def groups(self) -> Iterator[Group]:
        """The groups: a task and its trajectories."""
        return (stored.group for stored in self._read())

    def rows(self) -> Iterator[dict[str, Any]]:
        """A flat row for each trajectory, without its tokens. ``reward`` is None if it is not scored.

        ``environment`` is present in runs with several.
        """
        for purpose, step, group in self._read():
            for trajectory in group.trajectories:
                yield {
                    "purpose": purpose,
                    "step": step,
                    **({"environment": group.task.environment} if group.task.environment else {}),
                    "task_id": group.task.id,
                    "sibling": trajectory.sibling,
                    "reward": trajectory.reward,
                    **{f"reward/{id}": result.value for id, result in trajectory.rewards.items()},
                    "stop": str(trajectory.stop),
                    "failure": str(trajectory.failure) if trajectory.failure else None,
                    "turns": sum(turn.kind == "policy" for turn in trajectory.turns),
                    "tokens": trajectory.sampled_tokens,
                    "images": len(trajectory.images),
                    "final_response": trajectory.final_response,
                }

    def _repr_html_(self) -> str:
        return gallery(self.groups()) or f"<code>{html.escape(repr(self))}</code>"

    def to_pandas(self) -> pandas.DataFrame:
        """The `rows` as a data frame. Raises `NotInstalledError` without pandas."""
        return pandas_frame(list(self.rows()))

    def to_polars(self) -> polars.DataFrame:
        """The `rows` as a data frame. Raises `NotInstalledError` without polars."""
        return polars_frame(list(self.rows()))


__all__ = ["Stored", "Trajectories"]
