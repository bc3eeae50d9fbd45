"""How TRL counts: micro-batches, generations and optimiser steps, as tasks, updates and steps of ours.

A *generation* of TRL is one rollout here. Formulas, with P processes::

    completions = per_device_train_batch_size · P · steps_per_generation    of a generation
    tasks       = completions / num_generations
    updates     = steps_per_generation / gradient_accumulation_steps        optimiser steps of one pass over it
    steps       = rows · num_train_epochs / tasks                           generations of a run

TRL's own defaults stand in where a word has no meaning without a neighbour that is not given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.config.vocabulary import Refused, Several, Words

PROCESSES = "num_processes"
"""Accelerate's word; ``strategy.processes`` of a command line counts the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One rollout, as TRL's words describe it."""

    tasks: int
    updates: int
    """Optimiser steps of one pass over it."""
    passes: int

    @property
    def optimiser_steps(self) -> int:
        """Of all passes."""
        return self.updates * self.passes


def whole(words: Words, name: str, default: int) -> int:
    """A count among the words."""
    value = words.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refused(f"{name} must be a whole number above 0", of=name)
    return value


def generation(words: Words) -> Generation:
    """The rollout that the words describe; raises `Refused` when they do not fit together."""
    micro_batch = whole(words, "per_device_train_batch_size", 8) * whole(words, PROCESSES, 1)
    accumulation, siblings = whole(words, "gradient_accumulation_steps", 1), whole(words, "num_generations", 8)
    micro_batches, completions = _size(words, micro_batch, accumulation)
    tasks, rest = divmod(completions, siblings)
    if rest:
        reason = f"the {completions} completions of a generation are not whole groups of {siblings}"
        raise Refused(reason, of="num_generations")
    updates, rest = divmod(micro_batches, accumulation)
    if rest:
        reason = f"the {micro_batches} micro-batches of a generation are not whole optimiser steps of {accumulation}"
        mend = "give steps_per_generation a multiple of gradient_accumulation_steps"
        raise Refused(f"{reason}: {mend}", of="steps_per_generation")
    return Generation(tasks=tasks, updates=updates, passes=whole(words, "num_iterations", 1))


def _size(words: Words, micro_batch: int, accumulation: int) -> tuple[int, int]:
    """Micro-batches and completions of a generation."""
    if words.get("generation_batch_size") is None:
        micro_batches = whole(words, "steps_per_generation", accumulation)
        return micro_batches, micro_batches * micro_batch
    if words.get("steps_per_generation") is not None:
        reason = "generation_batch_size and steps_per_generation say the same: give one of them"
        raise Refused(reason, of="steps_per_generation")
    completions = whole(words, "generation_batch_size", 1)
    micro_batches, rest = divmod(completions, micro_batch)
    if rest:
        reason = f"{completions} completions are not whole micro-batches of {micro_batch}"
        raise Refused(reason, of="generation_batch_size")
    return micro_batches, completions


def sizes(value: Any, words: Words) -> Several:
    """What a word that cuts generations sets."""
    found = generation(words)
    return Several({"trainer.tasks_per_step": found.tasks, "trainer.updates_per_rollout": found.updates})


def steps(value: Any, words: Words) -> int:
    """Rollouts of the whole run: by ``max_steps``, which counts optimiser steps, else by passes over the data."""
    one = generation(words)
    most = words.get("max_steps")
    if isinstance(most, int) and most > 0:
        return math.ceil(most / one.optimiser_steps)
    epochs = words.get("num_train_epochs", 3)
    if not isinstance(epochs, int | float) or isinstance(epochs, bool) or epochs <= 0:
        raise Refused("num_train_epochs must be a number above 0", of="num_train_epochs")
    return math.ceil(rows(words, otherwise="max_steps, the number of optimiser steps") * epochs / one.tasks)


def as_steps(value: Any, words: Words) -> int:
    """A number of optimiser steps, or below 1 a share of all, as rollouts of ours, rounded up."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise Refused("it must be a number of optimiser steps, or a share of all below 1")
    if 0 < value < 1:
        return math.ceil(round(value * steps(None, words), 6))
    return math.ceil(value / generation(words).optimiser_steps)


def steps_of_epoch(words: Words) -> int:
    """Rollouts in which every row of the training file comes once."""
    return math.ceil(rows(words, otherwise="a number of steps") / generation(words).tasks)


def conversations_per_step(value: Any, words: Words) -> int:
    """Conversations of one update of supervised training."""
    accumulated = whole(words, "batch_size", 1) * whole(words, "gradient_accumulation_steps", 1)
    return accumulated * whole(words, PROCESSES, 1)


def updates_of_epochs(value: Any, words: Words) -> int:
    """A number of passes over the conversations as updates."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused("it must be a whole number of passes over the training file")
    per_epoch = math.ceil(rows(words, otherwise="our own key, in steps") / conversations_per_step(None, words))
    return value * per_epoch


def rows(words: Words, *, otherwise: str) -> int:
    """How many rows the training file has: what is counted in passes over the data depends on it."""
    given = words.get("train_file")
    files: Sequence[Any] = given if isinstance(given, list) else [given]
    if given is None or not all(isinstance(file, str) for file in files):
        raise Refused(f"it counts passes over train_file: name that file here, or give {otherwise}")
    return sum(_rows_of(Path(file), otherwise) for file in files)


def _rows_of(path: Path, otherwise: str) -> int:
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = json.loads(text) if path.suffix.lower() == ".json" else [x for x in text.split("\n") if x.strip()]
    except FileNotFoundError:
        raise Refused(f"the rows of train_file are counted, and there is no file {path}", of="train_file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"the rows of {path} cannot be counted ({error}): give {otherwise}", of="train_file") from None
    if not isinstance(found, list) or not found:
        raise Refused(f"{path} has no rows to count", of="train_file")
    return len(found)
