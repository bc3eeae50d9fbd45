"""Whether an update's time grows as its arithmetic does, and its memory not at all, with more and longer rollouts.

Groups of 8 responses of 64 tokens, the model of ``shared-prompt``. ``rollouts`` goes from 64 to 512 at prompts of 128
tokens and 4,096 tokens a micro-batch, ``prompt`` from 128 tokens to 4,096 with 16 rollouts and 8,192 a micro-batch. The
other side is the time of the small update times the growth of the arithmetic: 6 operations a parameter and token fed,
12 a pair of tokens that attend, channel and layer, and 6 a parameter of the output layer and trained token. So 0.80
means that the time per operation rose by a quarter.

``rollouts-memory`` compares peaks of anonymous memory above a process that only imported the libraries, for 64 and 512
rollouts with two groups in a micro-batch, that is 4 of them and 32. It takes about three until the C library's heap has
the holes that it keeps: the peak rises until then, and no further.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from comparison import Comparison
from shared_prompt import RESPONSE, SIBLINGS, build

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

from worker import Worker

VERSIONS = ("rlcore-trainer", "torch", "transformers")
SIDE = Path(__file__).parent / "_update_side.py"
SMALL_BUDGET = 1280
"""Tokens of two groups."""


def operations(groups: int, prompt: int) -> float:
    """Floating-point operations of a forward and backward pass."""
    model = build()
    config = model.config
    head = config.vocab_size * config.hidden_size
    body = model.num_parameters() - head
    response = RESPONSE - 1
    fed = groups * (prompt + SIBLINGS * response)
    pairs = groups * (prompt**2 / 2 + SIBLINGS * response * (prompt + response / 2))
    attention = 12 * pairs * config.hidden_size * config.num_hidden_layers
    return 6 * body * fed + attention + 6 * head * groups * SIBLINGS * RESPONSE


class Side:
    """A process that repeats one update."""

    def __init__(self, groups: int, prompt: int, budget: int) -> None:
        self.operations = operations(groups, prompt)
        arguments = map(str, (groups, prompt, budget, torch.get_num_threads()))
        self._worker = Worker([sys.executable, str(SIDE), *arguments], dict(os.environ))
        atexit.register(self._worker.close)
        self._worker.step(sampled=True)

    def seconds(self) -> float:
        """Of one update."""
        return float(self._worker.step()["seconds"])

    def peak_mb(self) -> float:
        """Of one more update, or a former one."""
        self._worker.step(sampled=True)
        return self._worker.peak_mb


def comparisons() -> list[Comparison]:
    """Time by rollouts and by prompt, and memory by rollouts."""
    few, many = Side(8, 128, 4096), Side(64, 128, 4096)
    short, long = Side(2, 128, 8192), Side(2, 4096, 8192)
    four, many_small = Side(8, 128, SMALL_BUDGET), Side(64, 128, SMALL_BUDGET)

    def grown(small: Side, large: Side) -> Callable[[], float]:
        return lambda: small.seconds() * large.operations / small.operations

    return [
        Comparison(name="rollouts", ours=many.seconds, peer=grown(few, many), floor=0.8),
        Comparison(name="prompt", ours=long.seconds, peer=grown(short, long), floor=0.8),
        Comparison(
            name="rollouts-memory", ours=many_small.peak_mb, peer=four.peak_mb, floor=0.8, unit="MB", warm_ups=0
        ),
    ]
