"""Task order as a function of the step, or of a `Cursor` if steps take varying numbers of tasks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from rlcore.errors import DataError
from rlcore.types import derive_seed


def tasks_of_step(step: int, *, tasks: int, per_step: int, seed: int | None) -> tuple[int, list[int]]:
    """Return the epoch and the task indices of a step, counted from 1.

    Each epoch uses a separate permutation, keyed by (seed, epoch) and divided into whole steps; without a seed, the
    tasks keep their order. The remainder of less
    than a step is skipped in that epoch, so no task occurs twice in a step.

    Raises:
        DataError: there are fewer tasks than a step needs.
    """
    start = cursor_of_step(step, tasks=tasks, per_step=per_step)
    order = _order(tasks, seed, start.epoch)
    return start.epoch, list(order[start.position : start.position + per_step])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in the task order."""

    epoch: int
    position: int
    """Number of tasks of the epoch's permutation that were already passed."""
    deferred: tuple[int, ...] = ()
    """Passed tasks that could not be drawn at the time. They are drawn next."""


def cursor_of_step(step: int, *, tasks: int, per_step: int) -> Cursor:
    """Return the cursor at the first task of a step. Raises the same errors as `tasks_of_step`."""
    if tasks < per_step:
        raise DataError(
            f"a step needs {per_step} different tasks",
            found=f"{tasks} training tasks",
            where="trainer.tasks_per_step",
            fix=f"add data, or set trainer.tasks_per_step={max(1, tasks)}",
        )
    epoch, position = divmod(step - 1, tasks // per_step)
    return Cursor(epoch=epoch, position=position * per_step)


def draw(
    cursor: Cursor, count: int, *, tasks: int, seed: int | None, resting: Mapping[int, int] = MappingProxyType({})
) -> tuple[list[int], Cursor]:
    """Return the indices of the next ``count`` tasks, all different, and the cursor after them.

    Each epoch uses the same permutation as `tasks_of_step` and is drawn completely: every task occurs exactly once per
    epoch. If a draw continues into the next epoch, a task that it already contains is deferred to the start of the next
    draw. A resting task is skipped until the epoch that it is mapped to; ``count`` tasks must not rest.

    Raises:
        ValueError: ``count`` exceeds the number of tasks.
    """
    if count > tasks:
        raise ValueError(f"{count} different tasks out of {tasks}")
    epoch, position = cursor.epoch, cursor.position
    waiting = [index for index in cursor.deferred if resting.get(index, 0) <= epoch]
    taken, deferred = waiting[:count], waiting[count:]
    held = set(taken)
    while len(taken) < count:
        if position == tasks:
            epoch, position = epoch + 1, 0
        index = _order(tasks, seed, epoch)[position]
        position += 1
        if resting.get(index, 0) > epoch:
            continue
        if index in held:
            deferred.append(index)
        else:
            held.add(index)
            taken.append(index)
    return taken, Cursor(epoch=epoch, position=position, deferred=tuple(deferred))


@lru_cache(maxsize=16)
def _order(tasks: int, seed: int | None, epoch: int) -> tuple[int, ...]:
    order = list(range(tasks))
    if seed is not None:
        random.Random(derive_seed(seed, "data", epoch)).shuffle(order)
    return tuple(order)
