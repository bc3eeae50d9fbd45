"""Keys whose values are computed: batch sizes and passes over the data in updates, the trainer, the run directory."""

from __future__ import annotations

import math
from typing import Any

from rlcore.config.requirements import unmet_with_extras
from rlcore_compat.tables import Refused, Several, Words
from rlcore_compat.trl import trackers
from rlcore_compat.trl_batches import PROCESSES, rows, whole


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


def policy_gradient(value: Any, words: Words) -> Several:
    """The trainer of the block ``GRPO``, with the schedule of TRL."""
    found = Several({"trainer.id": "policy-gradient"})
    if words.get("lr_scheduler_type") is None:
        found["trainer.schedule"] = "linear"
    return found


def run_directory(value: Any, words: Words) -> Several:
    """Both programs write event files there by default."""
    found = Several({"runs": value})
    if words.get("report_to") is None and unmet_with_extras("rlcore-core[tensorboard]") is None:
        found["trackers.use"] = trackers("tensorboard", words)
    return found


def do_eval(value: Any, words: Words) -> Any:
    """Evaluations of supervised training: never, or as often as another key sets."""
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    asked = words.get("pipeline.test.evaluating_epoch_freq") is not None
    return Several() if value or asked else 0
