"""What ``schedule.max_age`` drops if one of ten tasks takes as long as several steps: the table of the guide."""

from __future__ import annotations

import asyncio
import random

import pytest
from _waiting_tools import Slow, steps_of
from rlcore.types import Observation, Task

SHORT_S, LONG_S = 0.3, 8.0


class HeavyTail(Slow):
    """The calculator environment, in which one of ten tasks arrives after 8 s, and the others after 0.3 s."""

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Wait, as for a tool of another machine."""
        await asyncio.sleep(LONG_S if random.Random(seed).random() < 0.1 else SHORT_S)
        return await super(Slow, self).reset(task, seed=seed)


@pytest.mark.proof
def test_small_age_drops_groups_and_a_large_one_trains_on_old_tokens() -> None:
    dropped, ages = [], []
    for ahead, max_age in ((0, 0), (1, 1), (1, 3), (1, 100), (2, 100)):
        environment = {"id": f"{__file__}:HeavyTail", "tools": ["calculator"], "max_turns": 2}
        schedule = {"ahead": ahead, "max_age": max_age}
        rows = steps_of(30, environment=environment, schedule=schedule)[1:]
        old = sum(row.get("stream/too_old", 0.0) for row in rows) / (8 * len(rows))
        oldest = max(row.get("stream/age_max", 0.0) for row in rows)
        mean = sum(row.get("stream/age_mean", 0.0) for row in rows) / len(rows)
        took = sum(row["time/step_s"] for row in rows) / len(rows)
        print(
            f"ahead {ahead}, max_age {max_age}: {took:.2f} s a step, {old:.1%} dropped, age {mean:.2f} to {oldest:.0f}"
        )
        dropped.append(old)
        ages.append(oldest)
    assert dropped[1] > dropped[2] >= dropped[3] == 0
    assert ages[1] <= 1
    assert ages[2] <= 3 < ages[3]
