"""Time and peak memory of log-probabilities, forward and backward, for 1024 tokens and a vocabulary of 151,936.

The width is 256, in float32. Each side runs in its own process with the same inputs. The memory is the anonymous memory
that the pass adds, including the gradients of hidden states and output layer (155 MB on every side).

The naive side uses ``log_softmax`` and ``gather`` on all logits with autograd. The sides of verl and TRL use their code
for CPUs; TRL has another kernel for GPUs. verl also computes the entropy, so it is compared with our pass with entropy,
and the others with our pass without. ``generic`` is our implementation for sequence-level losses. It computes the
logits twice and always the entropy.
"""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

import torch
from comparison import Absent, Comparison

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers
from worker import Worker

VERSIONS = ("rlcore-trainer", "torch")
ROWS, VOCABULARY, WIDTH = 1024, 151_936, 256
SMOKE_ROWS, SMOKE_VOCABULARY, SMOKE_WIDTH = 64, 1024, 32
SIDE = Path(__file__).parent / "_logprob_side.py"
TOLERANCE = 1e-4


class Side:
    """A process. Its results are compared with those of the first side."""

    expected: dict[str, float] | None = None

    def __init__(self, name: str, size: tuple[int, int, int], peer: str | None = None) -> None:
        script = f"../../benchmarks/{SIDE.name}"
        arguments = (name, *map(str, (torch.get_num_threads(), *size)))
        command = peers.command(peer, script, *arguments) if peer else [sys.executable, str(SIDE), *arguments]
        self.name = name
        self._worker = Worker(command, peers.environment())
        self._watched = 0
        atexit.register(self._worker.close)

    def seconds(self) -> float:
        """Seconds of one pass."""
        return self._pass(sampled=False)

    def peak_mb(self) -> float:
        """Peak memory of a pass. Only the first two passes are sampled, as later ones are the same."""
        if self._watched < 2:
            self._pass(sampled=True)
            self._watched += 1
        return self._worker.peak_mb

    def _pass(self, *, sampled: bool) -> float:
        report = self._worker.step(sampled=sampled)
        found = {name: report[name] for name in ("loss", "hidden", "head")}
        expected = Side.expected = Side.expected or found
        for name, value in found.items():
            gap = abs(value - expected[name]) / (1 + abs(expected[name]))
            assert gap < TOLERANCE, f"{self.name}: {name} is {value}, not {expected[name]}"
        return float(report["seconds"])


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Comparisons of the fused and the generic implementation."""
    size = (SMOKE_ROWS, SMOKE_VOCABULARY, SMOKE_WIDTH) if smoke else (ROWS, VOCABULARY, WIDTH)
    naive, fused, with_entropy, generic = (Side(name, size) for name in ("naive", "fused", "fused-entropy", "generic"))

    def of_peer(name: str, peer: str) -> Side | Absent:
        missing = peers.missing(peer) if smoke else ""
        return Absent(missing) if missing else Side(name, size, peer)

    verl = {chunk: of_peer(f"verl-{chunk}", "verl") for chunk in (64, 512)}
    trl = of_peer("trl", "trl")

    def time(name: str, ours: Side, peer: Side | Absent, floor: float) -> Comparison:
        theirs = peer if isinstance(peer, Absent) else peer.seconds
        return Comparison(name=name, ours=ours.seconds, peer=theirs, floor=floor)

    def memory(name: str, ours: Side, peer: Side | Absent, floor: float) -> Comparison:
        theirs = peer if isinstance(peer, Absent) else peer.peak_mb
        return Comparison(name=name, ours=ours.peak_mb, peer=theirs, floor=floor, unit="MB", warm_ups=0)

    return [
        memory("naive-memory", fused, naive, 8.0),
        memory("naive-memory-entropy", with_entropy, naive, 8.0),
        memory("naive-memory-generic", generic, naive, 8.0),
        time("naive", fused, naive, 1.0),
        time("naive-entropy", with_entropy, naive, 1.0),
        time("naive-generic", generic, naive, 0.7),
        time("verl-64", with_entropy, verl[64], 1.0),
        time("verl-512", with_entropy, verl[512], 1.0),
        memory("verl-64-memory", with_entropy, verl[64], 1.0),
        time("trl", fused, trl, 1.0),
        memory("trl-memory", fused, trl, 1.0),
    ]
