"""The threads that a model is worth."""

from __future__ import annotations

import pytest
from rlcore.weights import SMALL_MODEL, cpu_threads


def test_only_small_models_are_kept_to_one_thread_and_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cpu_threads(SMALL_MODEL - 1) == 1
    assert cpu_threads(SMALL_MODEL) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert cpu_threads(1) is None
