"""The recommendation of the type that a CPU multiplies faster."""

from __future__ import annotations

import pytest
import torch
from rlcore_trainer.policy import precision
from rlcore_trainer.policy.precision import LARGE, precision_hint

CPU = torch.device("cpu")


def test_faster_products_are_recommended_for_a_large_model_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_seconds", {torch.float32: 2.1, torch.bfloat16: 1.0}.__getitem__)
    assert "2.1 times as fast as float32: model.dtype=bfloat16" in precision_hint(LARGE, torch.float32, CPU)
    assert precision_hint(LARGE - 1, torch.float32, CPU) == ""
    assert precision_hint(LARGE, torch.bfloat16, CPU) == ""
    assert precision_hint(LARGE, torch.float32, torch.device("cuda")) == ""


def test_float32_is_recommended_where_bfloat16_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_seconds", {torch.float32: 1.0, torch.bfloat16: 5.0}.__getitem__)
    assert "5.0 times as fast as bfloat16: model.dtype=float32" in precision_hint(LARGE, torch.bfloat16, CPU)


def test_equal_speed_is_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_seconds", {torch.float32: 1.1, torch.bfloat16: 1.0}.__getitem__)
    assert precision_hint(LARGE, torch.float32, CPU) == ""


def test_products_are_measured() -> None:
    assert 0 < precision._seconds(torch.bfloat16) < 10
