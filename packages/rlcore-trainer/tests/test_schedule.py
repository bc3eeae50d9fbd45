from __future__ import annotations

import pytest
from rlcore_trainer.controller.schedule import learning_rate


def rates(**options: object) -> list[float]:
    return [learning_rate(step, steps=8, peak=1.0, **options) for step in range(1, 9)]  # type: ignore[arg-type]


def test_constant_schedule_does_not_change() -> None:
    assert rates() == [1.0] * 8


def test_learning_rate_rises_during_warm_up() -> None:
    assert rates(warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_learning_rate_falls_but_stays_positive(schedule: str) -> None:
    found = rates(warmup_steps=2, schedule=schedule)
    assert found[1] == found[2] == 1.0
    assert found[2:] == sorted(found[2:], reverse=True)
    assert 0 < found[-1] < 0.2


def test_linear_schedule_falls_evenly() -> None:
    assert rates(schedule="linear") == pytest.approx([1 - i / 8 for i in range(8)])
