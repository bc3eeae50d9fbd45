"""The state of sampling between steps, and its serialisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
class Running:
    """A group that is being sampled. It is sampled again after a resume."""

    environment: str
    task: int
    """The index of its task in the environment."""
    id: str
    """The id of its task."""
    batch: int
    """Number of its rollout, which keys its randomness."""
    place: int
    """Position among the tasks of the rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorState:
    """The data positions and the groups carried over to the next step."""

    drawn: mixture.MixtureState
    batch: int
    """Number of the last rollout."""
    trained: int = 0
    """Number of steps that were not skipped."""
    carried: tuple[Waiting, ...] = ()
    running: tuple[Running, ...] = ()
    """The groups of a stream that have not ended."""
    ledger: Mapping[str, int] = field(default_factory=dict)
    """Number of groups of a stream that were ``submitted``, ``trained`` and dropped, by reason. The others are running
    or carried."""

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
            **({"running": [asdict(one) for one in self.running]} if self.running else {}),
            **({"ledger": dict(self.ledger)} if self.ledger else {}),
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
        running=tuple(Running(**item) for item in data.get("running", ())),
        ledger=data.get("ledger", {}),
    )


def _to_line(group: Group) -> str:
    trajectories = [trajectory_to_json(trajectory) for trajectory in group.trajectories]
    return json.dumps({"task": task_to_json(group.task), "trajectories": trajectories}, default=str)


def _from_line(line: str) -> Group:
    data = json.loads(line)
    trajectories = tuple(trajectory_from_json(item) for item in data["trajectories"])
    return Group(task=task_from_json(data["task"]), trajectories=trajectories)
