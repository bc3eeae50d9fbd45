"""The state of sampling between steps, and its serialisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.rollouts.records import task_from_json, task_to_json, trajectory_from_json, trajectory_to_json
from rlcore.types import Group

from rlcore_trainer.batching import mixture


@dataclass(frozen=True, slots=True)
class Waiting:
    """A group that passed the filter."""

    group: Group
    born: int
    """Number of training steps completed when the group was sampled."""
    step: int = -1
    """The step in which it was sampled; -1 if that is not known."""
    place: int = -1
    """Its number among the groups of that step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorState:
    """The data positions and the groups carried over to the next step."""

    drawn: mixture.MixtureState
    batch: int
    """Number of the last rollout."""
    trained: int = 0
    """Number of steps that were not skipped."""
    carried: tuple[Waiting, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, with each group as a JSON string.

        Numbers are restored exactly. Task fields without a JSON representation are restored as strings, as in a run's
        records.
        """
        return {
            "drawn": mixture.to_json(self.drawn),
            "batch": self.batch,
            "trained": self.trained,
            "carried": [
                {"born": one.born, "step": one.step, "place": one.place, "group": _to_line(one.group)}
                for one in self.carried
            ],
        }


def from_json(data: Mapping[str, Any]) -> CollectorState:
    """The inverse of `CollectorState.to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the data is malformed.
    """
    return CollectorState(
        drawn=mixture.from_json(data["drawn"]),
        batch=data["batch"],
        trained=data["trained"],
        carried=tuple(
            Waiting(_from_line(item["group"]), item["born"], item.get("step", -1), item.get("place", -1))
            for item in data["carried"]
        ),
    )


def _to_line(group: Group) -> str:
    trajectories = [trajectory_to_json(trajectory) for trajectory in group.trajectories]
    return json.dumps({"task": task_to_json(group.task), "trajectories": trajectories}, default=str)


def _from_line(line: str) -> Group:
    data = json.loads(line)
    trajectories = tuple(trajectory_from_json(item) for item in data["trajectories"])
    return Group(task=task_from_json(data["task"]), trajectories=trajectories)
