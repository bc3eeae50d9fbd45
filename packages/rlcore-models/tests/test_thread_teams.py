"""Threads of OpenMP end when they are released, and start again."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import os
import torch
from rlcore_models.thread_teams import release_thread_team

def compute():
    return len(os.listdir("/proc/self/task")), float(torch.ones(1000, 1000).mul(2).sum())

torch.set_num_threads(3)
before = len(os.listdir("/proc/self/task"))
compute()
started, first = compute()
release_thread_team()
left = len(os.listdir("/proc/self/task"))
print(started - before, left - before, compute()[1] == first)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs libgomp")
def test_released_threads_end_and_start_again() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "0", "True"]
