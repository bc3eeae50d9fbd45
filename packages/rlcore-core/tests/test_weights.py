"""CPU threads for a model."""

from __future__ import annotations

import os
import sys

import pytest
from rlcore.models.weights import SMALL_MODEL, cpu_threads, let_waiting_threads_sleep


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
