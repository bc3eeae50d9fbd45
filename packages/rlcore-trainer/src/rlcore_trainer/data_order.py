"""Which tasks a step takes, as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import random

from rlcore.errors import DataError
from rlcore.types import derive_seed


def tasks_of_step(step: int, *, tasks: int, per_step: int, seed: int) -> tuple[int, list[int]]:
    """The epoch and the indices of the tasks of step 1, 2, ….

    Every epoch is a permutation of its own, keyed by (seed, epoch), cut into whole steps; the remainder of less than a
    step sits that epoch out, so that no task stands twice in a step.

    Raises:
        DataError: there are fewer tasks than a step takes.
    """
    if tasks < per_step:
        raise DataError(
            f"a step takes {per_step} different tasks",
            found=f"{tasks} training tasks",
            where="trainer.tasks_per_step",
            mend=f"add data, or set trainer.tasks_per_step={max(1, tasks)}",
        )
    epoch, position = divmod(step - 1, tasks // per_step)
    order = list(range(tasks))
    random.Random(derive_seed(seed, "data", epoch)).shuffle(order)
    return epoch, order[position * per_step : (position + 1) * per_step]
