"""The order of tasks, as a function of a position in it: steps may take varying numbers of tasks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from rlcore.types import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in the task order."""

    epoch: int = 0
    position: int = 0
    """Number of tasks of the epoch's permutation that were already passed."""
    deferred: tuple[int, ...] = ()
    """Passed tasks that could not be drawn at the time. They are drawn next."""


def draw(
    cursor: Cursor, count: int, *, tasks: int, seed: int | None, resting: Mapping[int, int] = MappingProxyType({})
) -> tuple[list[int], Cursor]:
    """Return the indices of the next ``count`` tasks, all different, and the cursor after them.

    Each epoch uses a separate permutation, keyed by (seed, epoch); without a seed, the tasks keep their order. Every
    task occurs exactly once per epoch. If a draw continues into the next epoch, a task that it already contains is
    deferred to the start of the next draw. A resting task is skipped until the epoch that it is mapped to; ``count``
    tasks must not rest.

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
