"""The number of processes on the command line, which determines TRL's batch size."""

from __future__ import annotations

from typing import Any

from rlcore.config.adapters import Given

from rlcore_compat.vocabulary import Words, foreign_value

PROCESSES = "num_processes"
"""The key of accelerate; ``strategy.processes`` on the command line is equivalent."""
KIND = "distributed_type"
"""The key that identifies a file of accelerate."""


def processes_beside(given: Given) -> Words:
    """``num_processes`` from an accelerate file or from ``strategy.processes``, which takes precedence."""
    found: dict[str, Any] = {}
    for tree in given.files:
        if KIND in tree and PROCESSES in tree:
            found[PROCESSES] = tree[PROCESSES]
    for text in given.overrides:
        key, _, value = text.partition("=")
        if key.strip() == "strategy.processes":
            found[PROCESSES] = foreign_value(value)
    return found
