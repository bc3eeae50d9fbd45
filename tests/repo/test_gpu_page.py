"""The script that measures training on GPUs runs on any machine with a tiny model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_script_for_gpus_runs_with_a_tiny_model() -> None:
    script = Path(__file__).with_name("gpu_page.py")
    done = subprocess.run([sys.executable, str(script), "--tiny"], capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row[0].strip("| ").partition(",")[0] for row in rows] == [
        *("supervised", "reinforcement", "reinforcement with an adapter", "supervised")
    ]
    assert all(int(row[1].replace(",", "")) > 0 and "estimated" in row[5] for row in rows), done.stdout
