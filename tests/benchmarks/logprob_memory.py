"""Log-probabilities of 1024 tokens over 151,936 forward and backward, time and peak memory, against three others.

Width 256, float32, every side in a process of its own that first makes the same inputs. Compared is what the pass adds
in anonymous memory, gradients of hidden states and output layer included (155 MB on every side), and the time.

The naive side is ``log_softmax`` and ``gather`` on all logits by autograd. verl's and TRL's are their own code for this
on a CPU; on a GPU TRL has another kernel. verl computes the entropy with it, so it is compared with our pass that does
too; the others are compared with the one that does not. ``generic`` is our form for losses that look at whole
sequences, which computes the logits twice and always the entropy; its time is no floor.
"""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

import torch
from comparison import Comparison

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers
from worker import Worker

VERSIONS = ("rlcore-trainer", "torch")
SIDE = Path(__file__).parent / "_logprob_side.py"
TOLERANCE = 1e-4


class Side:
    """A process; its results are compared with those of the first side."""

    expected: dict[str, float] | None = None

    def __init__(self, name: str, peer: str | None = None) -> None:
        script = f"../../benchmarks/{SIDE.name}"
        arguments = (name, str(torch.get_num_threads()))
        command = peers.command(peer, script, *arguments) if peer else [sys.executable, str(SIDE), *arguments]
        self.name = name
        self._worker = Worker(command, peers.environment())
        self._watched = 0
        atexit.register(self._worker.close)

    def seconds(self) -> float:
        """Of one pass."""
        return self._pass(sampled=False)

    def peak_mb(self) -> float:
        """Of one pass; watched twice, as what follows is the same."""
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


def comparisons() -> list[Comparison]:
    """The floors of both our forms, and what the generic one costs."""
    naive, fused, with_entropy, generic = map(Side, ("naive", "fused", "fused-entropy", "generic"))
    verl = {size: Side(f"verl-{size}", "verl") for size in (64, 512)}
    trl = Side("trl", "trl")

    def time(name: str, ours: Side, peer: Side, floor: float) -> Comparison:
        return Comparison(name=name, ours=ours.seconds, peer=peer.seconds, floor=floor)

    def memory(name: str, ours: Side, peer: Side, floor: float) -> Comparison:
        return Comparison(name=name, ours=ours.peak_mb, peer=peer.peak_mb, floor=floor, unit="MB", warm_ups=0)

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
