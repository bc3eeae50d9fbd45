"""Which tasks a step draws from which environment, as a function of the weights and a state that is saved.

Each environment has its own task order and its own position in it. The number of tasks of an environment in each step
follows its weight without randomness: what a step cannot give because tasks are whole is owed to the next ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from rlcore.errors import DataError
from rlcore.types import Task, derive_seed

from rlcore_trainer.batching.data_order import Cursor, draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The training tasks of one environment."""

    name: str
    """The name of the environment; empty for the only one of a run."""
    tasks: Sequence[Task]
    weight_at: Callable[[int], float] = field(default=lambda step: 1.0)
    """The weight at a step, relative to the other environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """The position in the tasks of one environment."""

    tasks: int
    """Number of tasks, to notice when the data has changed."""
    cursor: Cursor = field(default_factory=Cursor)
    owed: float = 0.0
    """Number of tasks that the earlier steps drew too few; negative if they drew too many."""
    resting: Mapping[int, int] = field(default_factory=dict)
    """Tasks that are skipped because of their success, by index, with the first epoch in which they are drawn again."""


MixtureState = Mapping[str, PartState]
"""The states of all environments by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The tasks of a request."""

    tasks: Sequence[Task]
    places: Sequence[tuple[str, int]]
    """The environment of each task and the task's index in it."""
    state: MixtureState
    """The state afterwards."""


class Mixture:
    """Draws the tasks of a run with several environments, or with a curriculum.

    Args:
        parts: the environments
        seed: of the task orders; None keeps the order of the data
        per_step: number of tasks of a step, for the check of the numbers of tasks

    Raises:
        DataError: an environment has fewer tasks than a step needs.
    """

    def __init__(self, parts: Sequence[Part], *, seed: int | None, per_step: int) -> None:
        self._parts, self._seed = parts, seed
        self.draw(self.start(), per_step, 1)

    def start(self) -> MixtureState:
        """The state before the first step."""
        return {part.name: PartState(tasks=len(part.tasks)) for part in self._parts}

    def task(self, name: str, index: int) -> Task | None:
        """A task of an environment; None if there is none."""
        tasks = next((part.tasks for part in self._parts if part.name == name), ())
        return tasks[index] if 0 <= index < len(tasks) else None

    def first(self, state: MixtureState, tasks: AbstractSet[tuple[str, str]]) -> MixtureState:
        """A state that draws these tasks first, which are given by environment and id."""
        found = {}
        for part in self._parts:
            before = state[part.name]
            indices = [
                i for i, task in enumerate(part.tasks) if {(part.name, task.id), (task.environment, task.id)} & tasks
            ]
            deferred = dict.fromkeys([*indices, *before.cursor.deferred])
            found[part.name] = replace(before, cursor=replace(before.cursor, deferred=tuple(deferred)))
        return found

    def resumed(self, state: MixtureState) -> MixtureState:
        """A stored state for these environments. If the tasks of one have changed, it begins a new epoch."""
        found = {}
        for part in self._parts:
            before = state.get(part.name, PartState(tasks=len(part.tasks)))
            if before.tasks != len(part.tasks):
                cursor = Cursor(epoch=before.cursor.epoch + 1, position=0)
                before = PartState(tasks=len(part.tasks), cursor=cursor, owed=before.owed)
            found[part.name] = before
        return found

    def draw(self, state: MixtureState, count: int, step: int) -> Drawn:
        """Draw the next tasks, all different, in the order of the environments.

        Raises:
            DataError: the environments with a weight have fewer tasks.
        """
        weights = [part.weight_at(step) for part in self._parts]
        owed = [state[part.name].owed for part in self._parts]
        counts, owed = apportion(weights, owed, count, [len(part.tasks) for part in self._parts])
        tasks: list[Task] = []
        places: list[tuple[str, int]] = []
        after = {}
        for part, number, debt in zip(self._parts, counts, owed, strict=True):
            before = state[part.name]
            seed = None if self._seed is None else self._seed_of(self._seed, part.name)
            resting = _resting(before, number)
            indices, cursor = draw(before.cursor, number, tasks=len(part.tasks), seed=seed, resting=resting)
            tasks += [part.tasks[index] for index in indices]
            places += [(part.name, index) for index in indices]
            after[part.name] = PartState(tasks=before.tasks, cursor=cursor, owed=debt, resting=resting)
        return Drawn(tasks=tasks, places=places, state=after)

    def _seed_of(self, seed: int, name: str) -> int:
        """The only environment of a run has the same order with and without a curriculum."""
        return derive_seed(seed, "mixture", name) if name else seed


def _resting(state: PartState, count: int) -> Mapping[int, int]:
    """The resting tasks; none if fewer than ``count`` tasks are left."""
    asleep = sum(epoch > state.cursor.epoch for epoch in state.resting.values())
    return state.resting if state.tasks - asleep >= count else {}


def apportion(
    weights: Sequence[float], owed: Sequence[float], count: int, limits: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Divide ``count`` tasks by the weights, as whole numbers, and return them with what is owed afterwards.

    Each part gets its exact share plus what it is owed, rounded; the largest remainders are rounded up. Over many calls
    the number of each part thus follows the sum of its shares. A part of weight 0 gets nothing and is owed nothing.

    A part with fewer tasks than its share is not owed the rest.

    Raises:
        DataError: the limits of the parts with a weight are too small.
    """
    total = math.fsum(weights)
    room = [limit if weight > 0 else 0 for limit, weight in zip(limits, weights, strict=True)]
    if total <= 0 or sum(room) < count:
        raise DataError(
            f"a step needs {count} different tasks",
            found=f"{sum(room)} " + ("tasks in the environments with a weight" if len(room) > 1 else "training tasks"),
            where="trainer.tasks_per_step",
            fix=f"add data, or set trainer.tasks_per_step={max(1, sum(room))}",
        )
    wanted = [count * weight / total + debt if weight > 0 else 0.0 for weight, debt in zip(weights, owed, strict=True)]
    counts = [min(limit, max(0, math.floor(share))) for share, limit in zip(wanted, room, strict=True)]
    while (missing := count - sum(counts)) != 0:
        change = 1 if missing > 0 else -1
        able = [n for n, limit in enumerate(room) if 0 <= counts[n] + change <= limit]
        counts[max(able, key=lambda n: (change * (wanted[n] - counts[n]), -n))] += change
    full = [number == limit for number, limit in zip(counts, room, strict=True)]
    debts = [share - number for share, number in zip(wanted, counts, strict=True)]
    debts = [min(debt, 0.0) if is_full else debt for debt, is_full in zip(debts, full, strict=True)]
    drawn = [n for n, weight in enumerate(weights) if weight > 0]
    excess = math.fsum(debts[n] for n in drawn) / len(drawn)  # not 0 after a limit or a change to weight 0
    return counts, [debt - excess if n in drawn else 0.0 for n, debt in enumerate(debts)]


def to_json(state: MixtureState) -> dict[str, Any]:
    """Return a state as plain JSON values."""
    return {
        name: {
            "tasks": one.tasks,
            "epoch": one.cursor.epoch,
            "position": one.cursor.position,
            "deferred": list(one.cursor.deferred),
            "owed": one.owed,
            "resting": [list(pair) for pair in one.resting.items()],
        }
        for name, one in state.items()
    }


def from_json(data: Mapping[str, Any]) -> MixtureState:
    """The inverse of `to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the data is malformed.
    """
    return {
        name: PartState(
            tasks=one["tasks"],
            cursor=Cursor(epoch=one["epoch"], position=one["position"], deferred=tuple(one["deferred"])),
            owed=float(one["owed"]),
            resting={int(index): int(epoch) for index, epoch in one["resting"]},
        )
        for name, one in data.items()
    }
