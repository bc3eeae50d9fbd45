"""The time of an update grows like its arithmetic with more and longer rollouts, and its memory stays constant.

The model is that of ``shared-prompt``, with groups of 8 responses of 64 tokens. ``rollouts`` increases from 64 to 512,
with prompts of 128 tokens and 4,096 tokens per micro-batch. ``prompt`` increases from 128 to 4,096 tokens, with 16
rollouts and 8,192 tokens per micro-batch. The peer is the time of the small update multiplied by the growth of the
arithmetic: 6 operations per parameter and input token, 12 per attended pair of tokens, channel and layer, and 6 per
parameter of the output layer and trained token. A ratio of 0.80 means that the time per operation rose by a quarter.

``rollouts-memory`` compares peaks of anonymous memory above a process that only imported the libraries, for 64 and 512
rollouts. A micro-batch has two groups, so there are 4 and 32 micro-batches. The peak rises during the first three or
so, until the heap of the C library is fragmented.
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
        """Seconds of one update."""
        return float(self._worker.step()["seconds"])

    def peak_mb(self) -> float:
        """Run one more update and return the peak so far."""
        self._worker.step(sampled=True)
        return self._worker.peak_mb


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Time by rollouts and by prompt, and memory by rollouts."""
    if smoke:
        few, many, long = Side(1, 16, SMALL_BUDGET), Side(2, 16, SMALL_BUDGET), Side(1, 32, SMALL_BUDGET)
        short, four, many_small = few, few, many
    else:
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
