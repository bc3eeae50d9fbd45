"""Advantages of 4096 trajectories of up to 2048 tokens, 8 per task, against the functions of verl.

Both sides take the same float32 token rewards (the score on the last token), mask and groups. They return float32
advantages ``[4096, 2048]``, which are compared before the measurement. Both use all cores.

- ``gae``: deltas, discounted sums and whitening. verl loops over tokens from the last to the first.
- ``grpo``, ``rloo``: sums of rewards over tokens, group statistics and advantages. The defaults of verl loop over
  trajectories and write a product with the mask. Ours returns the form that the trainer uses: one number per
  trajectory, and a view for its tokens.
- ``grpo-written``, ``rloo-written``: ours also writes all 8.4 million numbers, with the same product with the mask.

Axes: ``N`` trajectories, ``T`` tokens.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen

import torch
from comparison import Absent, Comparison
from rlcore_trainer.algorithms.advantages.gae import gae
from rlcore_trainer.algorithms.advantages.grpo import grpo
from rlcore_trainer.algorithms.advantages.rloo import rloo
from safetensors.torch import load_file, save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers

VERSIONS = ("rlcore-trainer", "torch")
TRAJECTORIES, TOKENS, GROUP = 4096, 2048, 8
SMOKE_TRAJECTORIES, SMOKE_TOKENS = 64, 32
GAMMA, LAMBDA = 1.0, 0.95
TOLERANCE = 1e-5


class Verl:
    """A process of verl that runs a function by name and reports its seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = Popen(
            peers.command("verl", "time_advantages.py", str(folder), str(torch.get_num_threads())),
            env=peers.environment(),
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )

    def seconds(self, name: str) -> float:
        """Run one function."""
        assert self._process.stdin
        assert self._process.stdout
        print(name, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError(f"verl's process ended with status {self._process.wait()} before it answered")

    def advantages(self, name: str) -> Tensor:
        """The result of the first call of the function."""
        self.seconds(name)
        return load_file(self.folder / f"{name}.safetensors")["advantages"]


def rollout(trajectories: int, tokens: int) -> dict[str, Tensor]:
    """Lengths from 1 to all tokens, a score between 0 and 1 on the last one, sorted groups."""
    random = torch.Generator().manual_seed(0)
    lengths_N = torch.randint(1, tokens + 1, (trajectories,), generator=random)
    mask_NT = torch.arange(tokens) < lengths_N[:, None]
    rewards_NT = torch.zeros(trajectories, tokens)
    rewards_NT[torch.arange(trajectories), lengths_N - 1] = torch.rand(trajectories, generator=random)
    return {
        "rewards": rewards_NT,
        "values": torch.randn(trajectories, tokens, generator=random) * mask_NT,
        "mask": mask_NT,
        "groups": torch.arange(trajectories) // GROUP,
        "gamma": torch.tensor(GAMMA, dtype=torch.float64),
        "lambda": torch.tensor(LAMBDA, dtype=torch.float64),
    }


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Compares the results of both sides once. The process of verl runs until the benchmark ends."""
    shape = (SMOKE_TRAJECTORIES, SMOKE_TOKENS) if smoke else (TRAJECTORIES, TOKENS)
    inputs = rollout(*shape)
    rewards_NT, mask_NT, groups_N = inputs["rewards"], inputs["mask"], inputs["groups"]
    written_NT = mask_NT.float()
    folder = Path(tempfile.mkdtemp(prefix="rlcore-benchmark-"))
    save_file(inputs, folder / "inputs.safetensors")
    missing = peers.missing("verl") if smoke else ""
    verl = None if missing else Verl(folder)

    def grouped(estimator: Callable[..., tuple[Tensor, dict[str, float]]], *, written: bool) -> Callable[[], Tensor]:
        def run() -> Tensor:
            advantages_N1 = estimator(rewards_NT.sum(1), groups_N)[0][:, None]
            return advantages_N1 * written_NT if written else advantages_N1.expand(mask_NT.shape)

        return run

    def compared(name: str, run: Callable[[], Tensor], peer: str, floor: float) -> Comparison:
        if verl is not None:
            difference = float(((run() - verl.advantages(peer)) * mask_NT).abs().max())
            assert difference <= TOLERANCE, f"{name}: {difference} away from verl"

        def ours() -> float:
            start = time.perf_counter()
            advantages_NT = run()
            elapsed = time.perf_counter() - start
            assert advantages_NT.shape == shape
            return elapsed

        theirs = Absent(missing) if verl is None else partial(verl.seconds, peer)
        return Comparison(name=name, ours=ours, peer=theirs, floor=floor, warm_ups=2)

    def whitened() -> Tensor:
        return gae(rewards_NT, inputs["values"], mask_NT, gamma=GAMMA, gae_lambda=LAMBDA)[0]

    return [
        compared("gae", whitened, "gae", 5.0),
        compared("grpo", grouped(grpo, written=False), "grpo", 10.0),
        compared("grpo-written", grouped(grpo, written=True), "grpo", 2.0),
        compared("rloo", grouped(rloo, written=False), "rloo", 10.0),
        compared("rloo-written", grouped(rloo, written=True), "rloo", 2.0),
    ]
