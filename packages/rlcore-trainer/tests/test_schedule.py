from __future__ import annotations

import pytest
from rlcore.errors import DataError
from rlcore_trainer.batching.data_order import tasks_of_step
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


def test_every_epoch_is_a_different_permutation() -> None:
    steps = [tasks_of_step(step, tasks=12, per_step=4, seed=3) for step in range(1, 7)]
    assert [epoch for epoch, _ in steps] == [0, 0, 0, 1, 1, 1]
    first, second = ([task for _, tasks in part for task in tasks] for part in (steps[:3], steps[3:]))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_tasks_of_a_step_are_distinct() -> None:
    for step in range(1, 30):
        _, tasks = tasks_of_step(step, tasks=7, per_step=5, seed=0)
        assert len(set(tasks)) == 5


def test_order_depends_on_the_seed() -> None:
    assert tasks_of_step(1, tasks=50, per_step=9, seed=0) != tasks_of_step(1, tasks=50, per_step=9, seed=1)


def test_too_few_tasks_are_rejected() -> None:
    with pytest.raises(DataError, match="a step needs 4"):
        tasks_of_step(1, tasks=3, per_step=4, seed=0)
