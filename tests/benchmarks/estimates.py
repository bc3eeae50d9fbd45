"""Memory that a run estimates before it starts, against its measured peak: within 20 % on the default recipes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("rlcore-core", "rlcore-trainer", "torch", "transformers")

COMMAND = str(Path(sys.executable).with_name("rlcore"))
PEAK = re.compile(r"memory    peak ([\d.]+) ([GM]iB), estimated ([\d.]+) ([GM]iB)")
BYTES = {"GiB": 2**30, "MiB": 2**20}
TOLERANCE = 0.2
SHORT = ("trainer.steps=3", "warmup.steps=20", "evaluation.tasks=64")
RUNS = {
    "default": ("-p", "gsm8k-tools", *SHORT),
    "sft": ("-p", "gsm8k-tools", "-r", "sft", "trainer.steps=10", "evaluation.tasks=64"),
    "adapter": ("-p", "gsm8k-tools", "lora.rank=16", *SHORT),
}
"""Arguments of ``rlcore run`` by name. Peaks are reached in the first steps."""


def count(*, smoke: bool = False) -> tuple[int, int, str]:
    """The number of runs whose estimate is within the tolerance."""
    names = ["default"] if smoke else list(RUNS)
    return sum(is_close(name, *measured(RUNS[name])) for name in names), len(names), "estimates within 20 %"


def is_close(name: str, peak: float, estimate: float) -> bool:
    """Whether an estimate is close to the peak. Prints both."""
    print(f"  {name}: estimated {estimate / 2**20:,.0f} MiB, peak {peak / 2**20:,.0f} MiB ({estimate / peak - 1:+.0%})")
    return abs(estimate - peak) <= TOLERANCE * peak


def measured(arguments: tuple[str, ...]) -> tuple[float, float]:
    """The peak and the estimate of a run, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [COMMAND, "run", *arguments, f"runs={folder}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = PEAK.search(done.stdout)
    assert found is not None, done.stdout
    return float(found[1]) * BYTES[found[2]], float(found[3]) * BYTES[found[4]]
