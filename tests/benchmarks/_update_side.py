"""One side of ``cost-growth``: ``python _update_side.py GROUPS PROMPT BUDGET THREADS``, controlled by ``worker.Gate``.

Forward and backward passes of an update on groups of 8 responses of 64 tokens, in micro-batches.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

from shared_prompt import RESPONSE, SIBLINGS, build, rollouts, update
from worker import Gate


def main(groups: int, prompt: int, budget: int, threads: int) -> None:
    """Run steps until the gate closes."""
    torch.set_num_threads(threads)
    gate = Gate()
    go_on = gate.wait(pid=os.getpid())
    model, sequences = build(), rollouts(groups, SIBLINGS, prompt, RESPONSE)
    while go_on:
        go_on = gate.wait(loss=update(model, sequences, budget))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
