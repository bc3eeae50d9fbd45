"""Time of ``rlcore --help`` and ``rlcore plugins list``."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from comparison import Comparison

VERSIONS = ("rlcore-core", "click", "pluggy")

COMMAND = str(Path(sys.executable).with_name("rlcore"))


def seconds(*arguments: str) -> float:
    """Wall time of one command, which must succeed and print output."""
    start = time.perf_counter()
    done = subprocess.run([COMMAND, *arguments], check=True, capture_output=True)
    elapsed = time.perf_counter() - start
    assert done.stdout, f"rlcore {' '.join(arguments)} printed nothing"
    return elapsed


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """The two budgets, with the installed console script."""
    return [
        Comparison(name="help", ours=lambda: seconds("--help"), peer=0.150, floor=1.0, warm_ups=2),
        Comparison(name="plugins-list", ours=lambda: seconds("plugins", "list"), peer=0.250, floor=1.0, warm_ups=2),
    ]
