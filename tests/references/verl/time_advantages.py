"""Time verl's advantage functions: ``python time_advantages.py FOLDER THREADS``, then one's name a line on its input.

The folder holds ``inputs.safetensors``; each line is answered with the seconds that the function took, and the first
time it writes its advantages to ``NAME.safetensors``. It ends with its input.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from verl.trainer.ppo import core_algos


def functions(inputs: dict[str, Tensor]) -> dict[str, Callable[[], Tensor]]:
    """Calls with the mask as the float array that verl's functions are fastest with, and groups as a NumPy array."""
    rewards_NT, values_NT, mask_NT = inputs["rewards"], inputs["values"], inputs["mask"].float()
    groups_N = inputs["groups"].numpy()
    grouped = {
        "grpo": core_algos.compute_grpo_outcome_advantage,
        "rloo": core_algos.compute_rloo_outcome_advantage,
    }
    gamma, gae_lambda = inputs["gamma"].item(), inputs["lambda"].item()
    calls: dict[str, Callable[[], Tensor]] = {
        name: lambda function=function: function(rewards_NT, mask_NT, groups_N)[0] for name, function in grouped.items()
    }
    calls["gae"] = lambda: core_algos.compute_gae_advantage_return(rewards_NT, values_NT, mask_NT, gamma, gae_lambda)[0]
    return calls


def main(folder: Path, threads: int) -> None:
    """Answer until the input ends."""
    torch.set_num_threads(threads)
    calls = functions(load_file(folder / "inputs.safetensors"))
    for line in sys.stdin:
        name = line.strip()
        start = time.perf_counter()
        advantages_NT = calls[name]()
        elapsed = time.perf_counter() - start
        if not (folder / f"{name}.safetensors").exists():
            save_file({"advantages": advantages_NT.contiguous()}, folder / f"{name}.safetensors")
        print(f"seconds {elapsed}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
