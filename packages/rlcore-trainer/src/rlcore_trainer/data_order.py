"""Which tasks come next: a function of the step, or of a `Cursor` where a step takes as many as it happens to need."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from rlcore.errors import DataError
from rlcore.types import derive_seed


def tasks_of_step(step: int, *, tasks: int, per_step: int, seed: int) -> tuple[int, list[int]]:
    """The epoch and the indices of the tasks of step 1, 2, ….

    Every epoch is a permutation of its own, keyed by (seed, epoch), cut into whole steps; the remainder of less than a
    step sits that epoch out, so that no task stands twice in a step.

    Raises:
        DataError: there are fewer tasks than a step takes.
    """
    start = cursor_of_step(step, tasks=tasks, per_step=per_step)
    order = _order(tasks, seed, start.epoch)
    return start.epoch, list(order[start.position : start.position + per_step])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far the order has been drawn."""

    epoch: int
    position: int
    """How many tasks of the epoch's permutation have been passed."""
    deferred: tuple[int, ...] = ()
    """Of those, the ones that could not be drawn when they were passed. They come next."""


def cursor_of_step(step: int, *, tasks: int, per_step: int) -> Cursor:
    """Where `tasks_of_step` begins to take. Raises as `tasks_of_step`."""
    if tasks < per_step:
        raise DataError(
            f"a step takes {per_step} different tasks",
            found=f"{tasks} training tasks",
            where="trainer.tasks_per_step",
            mend=f"add data, or set trainer.tasks_per_step={max(1, tasks)}",
        )
    epoch, position = divmod(step - 1, tasks // per_step)
    return Cursor(epoch=epoch, position=position * per_step)


def draw(cursor: Cursor, count: int, *, tasks: int, seed: int) -> tuple[list[int], Cursor]:
    """The indices of the next tasks, no two alike, and the cursor behind them.

    Every epoch is the permutation that `tasks_of_step` knows, drawn to its end: nothing sits out and nothing comes
    twice in an epoch. Where a draw reaches into the next epoch, a task that it holds already is put off to the
    beginning of the draw after it.

    Raises:
        ValueError: there are not that many different tasks.
    """
    if count > tasks:
        raise ValueError(f"{count} different tasks out of {tasks}")
    epoch, position = cursor.epoch, cursor.position
    taken, deferred = list(cursor.deferred[:count]), list(cursor.deferred[count:])
    held = set(taken)
    while len(taken) < count:
        if position == tasks:
            epoch, position = epoch + 1, 0
        index = _order(tasks, seed, epoch)[position]
        position += 1
        if index in held:
            deferred.append(index)
        else:
            held.add(index)
            taken.append(index)
    return taken, Cursor(epoch=epoch, position=position, deferred=tuple(deferred))


@lru_cache(maxsize=2)
def _order(tasks: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(tasks))
    random.Random(derive_seed(seed, "data", epoch)).shuffle(order)
    return tuple(order)
