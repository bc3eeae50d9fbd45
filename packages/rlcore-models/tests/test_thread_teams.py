"""How many threads of OpenMP compute. They end when they are released, and start again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rlcore.models.threads import let_waiting_threads_sleep
from rlcore_models.thread_teams import SMALL_MODEL, cpu_threads

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


def test_small_models_use_one_thread_unless_omp_num_threads_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert cpu_threads(SMALL_MODEL - 1) == 1
    assert cpu_threads(SMALL_MODEL) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert cpu_threads(1) is None


def test_sleeping_threads_are_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")  # so that it is restored afterwards
    monkeypatch.delenv("GOMP_SPINCOUNT")
    let_waiting_threads_sleep()
    assert cpu_threads(1) == 1
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    let_waiting_threads_sleep()
    assert cpu_threads(1) is None
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    let_waiting_threads_sleep()
    assert os.environ["GOMP_SPINCOUNT"] == "7"


def test_wait_policy_is_not_set_after_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setitem(sys.modules, "torch", sys)
    let_waiting_threads_sleep()
    assert cpu_threads(1) == 1
