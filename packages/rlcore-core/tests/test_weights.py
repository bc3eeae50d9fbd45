"""The threads that a model is worth."""

from __future__ import annotations

import sys

import pytest
from rlcore.weights import SMALL_MODEL, cpu_threads, let_waiting_threads_sleep


def test_only_small_models_are_kept_to_one_thread_and_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert cpu_threads(SMALL_MODEL - 1) == 1
    assert cpu_threads(SMALL_MODEL) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert cpu_threads(1) is None


def test_threads_that_sleep_while_they_wait_are_all_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    let_waiting_threads_sleep()
    assert cpu_threads(1) == 1
    monkeypatch.delenv("OMP_WAIT_POLICY")
    let_waiting_threads_sleep()
    assert cpu_threads(1) is None


def test_nothing_is_asked_of_a_library_that_is_loaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setitem(sys.modules, "torch", sys)
    let_waiting_threads_sleep()
    assert cpu_threads(1) == 1
