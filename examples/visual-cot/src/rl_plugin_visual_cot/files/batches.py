"""Convert batch sizes and passes over the data to conversations per update and updates."""

from __future__ import annotations

import math
from typing import Any

from rlcore_compat.processes import PROCESSES
from rlcore_compat.trl_batches import rows, whole
from rlcore_compat.vocabulary import Refused, Words


def conversations_per_step(value: Any, words: Words) -> int:
    """Conversations per update of supervised training."""
    accumulated = whole(words, "batch_size", 1) * whole(words, "gradient_accumulation_steps", 1)
    return accumulated * whole(words, PROCESSES, 1)


def updates_of_epochs(value: Any, words: Words) -> int:
    """Convert passes over the conversations to updates."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused("must be an integer number of passes over the training file")
    per_epoch = math.ceil(rows(words, otherwise="the rlcore key, in steps") / conversations_per_step(None, words))
    return value * per_epoch
