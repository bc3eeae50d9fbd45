"""What dynamic sampling carries from one step to the next, and its form in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.records import task_from_json, task_to_json, trajectory_from_json, trajectory_to_json
from rlcore.types import Group

from rlcore_trainer.data_order import Cursor


@dataclass(frozen=True, slots=True)
class Waiting:
    """A group that can be trained on."""

    group: Group
    born: int
    """How many steps had been trained when it was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenSteps:
    """How far the data has been drawn, and the groups that no step has trained on yet."""

    cursor: Cursor
    batch: int
    """Number of the last rollout."""
    trained: int = 0
    """Steps that had something to train on."""
    carried: tuple[Waiting, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, each group a line of text.

        Every number comes back bit by bit. A field of a task that JSON has no form for comes back as text, as from a
        run's records.
        """
        return {
            "epoch": self.cursor.epoch,
            "position": self.cursor.position,
            "deferred": list(self.cursor.deferred),
            "batch": self.batch,
            "trained": self.trained,
            "carried": [{"born": waiting.born, "group": _to_line(waiting.group)} for waiting in self.carried],
        }


def from_json(data: Mapping[str, Any]) -> BetweenSteps:
    """The inverse of `BetweenSteps.to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not what that gives.
    """
    return BetweenSteps(
        cursor=Cursor(epoch=data["epoch"], position=data["position"], deferred=tuple(data["deferred"])),
        batch=data["batch"],
        trained=data["trained"],
        carried=tuple(Waiting(_from_line(item["group"]), item["born"]) for item in data["carried"]),
    )


def _to_line(group: Group) -> str:
    trajectories = [trajectory_to_json(trajectory) for trajectory in group.trajectories]
    return json.dumps({"task": task_to_json(group.task), "trajectories": trajectories}, default=str)


def _from_line(line: str) -> Group:
    data = json.loads(line)
    trajectories = tuple(trajectory_from_json(item) for item in data["trajectories"])
    return Group(task=task_from_json(data["task"]), trajectories=trajectories)
