"""Supervised steps of two processes with FSDP2 against torch's own minimal FSDP2 loop, same model and tokens.

The model has 28 million parameters, with random weights in float32. A step has 16 rows of 256 tokens, in micro-batches
of 4 rows, and AdamW. Both sides must reach the same loss.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from comparison import Comparison
from rlcore_trainer.distributed.local_ranks import local_environment, rank_variables
from torch.distributed import TCPStore  # type: ignore[attr-defined]

VERSIONS = ("rlcore-trainer", "torch", "transformers")
SIDE = Path(__file__).with_name("_fsdp2_side.py")
PROCESSES = 2


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Both sides in two processes each."""
    rows, steps = ("4", "2") if smoke else ("16", "5")
    losses: dict[str, float] = {}

    def run(side: str) -> float:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        started = [
            subprocess.Popen(
                [sys.executable, str(SIDE), side, rows, steps],
                env=local_environment(rank_variables(index, PROCESSES, "127.0.0.1", store.port)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for index in range(PROCESSES)
        ]
        said, _ = started[0].communicate()
        for process in started:
            process.kill()
            process.wait()
        measured = json.loads(said.splitlines()[-1])
        other = losses.setdefault(side, measured["loss"])
        assert all(abs(one / other - 1) < 1e-3 for one in losses.values()), losses
        return float(measured["seconds"])

    return [Comparison(name="step", ours=lambda: run("ours"), peer=lambda: run("torch"), floor=0.9)]
