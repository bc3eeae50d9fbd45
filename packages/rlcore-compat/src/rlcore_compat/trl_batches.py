"""Convert TRL's micro-batches, generations and optimiser steps to rlcore's tasks, updates and steps.

A *generation* in TRL is one rollout in rlcore. With P processes::

    completions = per_device_train_batch_size · P · steps_per_generation    per generation
    tasks       = completions / num_generations
    updates     = steps_per_generation / gradient_accumulation_steps        optimiser steps per pass over a generation
    steps       = rows · num_train_epochs / tasks                           generations per run

TRL's defaults are used for keys that are needed in a formula but not given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.config.adapters import Given
from rlcore.data.files import SUFFIXES, data_files, file_rows
from rlcore.errors import RlcoreError

from rlcore_compat.tables import Refused, Several, Words
from rlcore_compat.vocabulary import foreign_value

DATASET = "dataset_name"
"""The key of TRL for the training data."""
KIND = "distributed_type"
"""The key that identifies a file of accelerate."""
PROCESSES = "num_processes"
"""The key of accelerate; ``strategy.processes`` on the command line is equivalent."""


def processes_beside(given: Given) -> Words:
    """``num_processes`` from an accelerate file or from ``strategy.processes``, which takes precedence.

    Processes that divide the same sequences have the same batch, and are counted once.
    """
    found: dict[str, Any] = {}
    for tree in given.files:
        if KIND in tree and PROCESSES in tree:
            found[PROCESSES] = 1 if tree[KIND] == "NO" else _batches(tree)
    for text in given.overrides:
        key, _, value = text.partition("=")
        if key.strip() == "strategy.processes":
            found[PROCESSES] = foreign_value(value)
    return found


def _batches(tree: Mapping[str, Any]) -> Any:
    """The number of processes with batches of their own in an accelerate file."""
    table, count = tree.get("parallelism_config"), tree[PROCESSES]
    for key in ("parallelism_config_sp_size", "parallelism_config_cp_size"):
        size = table.get(key, 1) if isinstance(table, Mapping) else 1
        if isinstance(size, int) and isinstance(count, int) and size > 1 and count % size == 0:
            count //= size
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One rollout, as configured by TRL's keys."""

    tasks: int
    updates: int
    """Optimiser steps per pass."""
    passes: int

    @property
    def optimiser_steps(self) -> int:
        """Optimiser steps of all passes."""
        return self.updates * self.passes


def whole(words: Words, name: str, default: int) -> int:
    """A positive integer setting."""
    value = words.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refused(f"{name} must be a positive integer", of=name)
    return value


def generation(words: Words) -> Generation:
    """The rollout that the settings describe; raises `Refused` when they are inconsistent."""
    micro_batch = whole(words, "per_device_train_batch_size", 8) * whole(words, PROCESSES, 1)
    accumulation, siblings = whole(words, "gradient_accumulation_steps", 1), whole(words, "num_generations", 8)
    micro_batches, completions = _size(words, micro_batch, accumulation)
    tasks, rest = divmod(completions, siblings)
    if rest:
        reason = f"the {completions} completions per generation are not divisible into groups of {siblings}"
        raise Refused(reason, of="num_generations")
    updates, rest = divmod(micro_batches, accumulation)
    if rest:
        reason = (
            f"the {micro_batches} micro-batches per generation are not divisible into optimiser steps of {accumulation}"
        )
        fix = "set steps_per_generation to a multiple of gradient_accumulation_steps"
        raise Refused(f"{reason}: {fix}", of="steps_per_generation")
    return Generation(tasks=tasks, updates=updates, passes=whole(words, "num_iterations", 1))


def _size(words: Words, micro_batch: int, accumulation: int) -> tuple[int, int]:
    """Micro-batches and completions per generation."""
    if words.get("generation_batch_size") is None:
        micro_batches = whole(words, "steps_per_generation", accumulation)
        return micro_batches, micro_batches * micro_batch
    if words.get("steps_per_generation") is not None:
        reason = "generation_batch_size and steps_per_generation are alternatives: give one of them"
        raise Refused(reason, of="steps_per_generation")
    completions = whole(words, "generation_batch_size", 1)
    micro_batches, rest = divmod(completions, micro_batch)
    if rest:
        reason = f"{completions} completions are not divisible into micro-batches of {micro_batch}"
        raise Refused(reason, of="generation_batch_size")
    return micro_batches, completions


def group_size(value: Any, words: Words) -> int:
    """Completions per prompt."""
    return whole(words, "num_generations", 8)


def sizes(value: Any, words: Words) -> Several:
    """The keys set by settings of the generation size."""
    found = generation(words)
    return Several({"trainer.tasks_per_step": found.tasks, "trainer.updates_per_rollout": found.updates})


def steps(value: Any, words: Words) -> int:
    """Rollouts per run: from ``max_steps`` (optimiser steps), else from passes over the data."""
    one = generation(words)
    most = words.get("max_steps")
    if isinstance(most, int) and most > 0:
        return math.ceil(most / one.optimiser_steps)
    epochs = words.get("num_train_epochs", 3)
    if not isinstance(epochs, int | float) or isinstance(epochs, bool) or epochs <= 0:
        raise Refused("num_train_epochs must be a positive number", of="num_train_epochs")
    return math.ceil(rows(words, otherwise="max_steps, the number of optimiser steps") * epochs / one.tasks)


def as_steps(value: Any, words: Words) -> int:
    """Convert optimiser steps, or a fraction of all steps below 1, to rollouts, rounded up."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise Refused("must be a number of optimiser steps, or a fraction of all steps below 1")
    if 0 < value < 1:
        return math.ceil(round(value * steps(None, words), 6))
    return math.ceil(value / generation(words).optimiser_steps)


def steps_of_epoch(words: Words) -> int:
    """Rollouts per pass over the training file."""
    return math.ceil(rows(words, otherwise="a number of steps") / generation(words).tasks)


def rows(words: Words, *, otherwise: str) -> int:
    """Number of rows in the training file, needed for settings in passes over the data.

    The file is given by ``dataset_name``, the key of TRL, or by ``train_file``, the key of programs based on TRL.
    """
    name = DATASET if DATASET in words else "train_file"
    given = words.get(name)
    files: Sequence[Any] = given if isinstance(given, list) else [given]
    if given is None or not all(isinstance(file, str) for file in files):
        raise Refused(f"counts passes over {name}: give that file, or {otherwise}")
    try:
        places = [dataset_place(file, words) for file in files]
        count = sum(1 for place in places for file in data_files(place, "train") for _ in file_rows(file))
    except RlcoreError as error:
        found = ": ".join(filter(None, (getattr(error, name, None) for name in ("message", "found", "where"))))
        raise Refused(f"cannot count the rows of {name} ({found}): give {otherwise}", of=name) from None
    if not count:
        raise Refused(f"{', '.join(places)} has no rows", of=name)
    return count


def dataset_place(name: str, words: Words) -> str:
    """The file of ``dataset_name``, or the folder of ``dataset_config`` of a data set of the hub."""
    config = words.get("dataset_config")
    whole = name.endswith(SUFFIXES) or not isinstance(config, str) or config == "default"
    return name if whole else f"{name}/{config}"
