"""What ``schedule.max_age`` drops if one of ten tasks takes as long as several steps: the table of the guide."""

from __future__ import annotations

import asyncio
import json
import random

from _waiting_tools import steps_of
from rl_plugin_gsm8k_tools.config import EnvironmentConfig
from rl_plugin_gsm8k_tools.environment import Gsm8kTools
from rlcore.types import Message, Observation, Step, Task

SHORT_S, LONG_S = 0.3, 8.0


class HeavyTail(Gsm8kTools):
    """The calculator environment, which answers one of ten trajectories after 8 s, and the others after 0.3 s."""

    Config = EnvironmentConfig

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Choose how long an answer takes."""
        self._waits = LONG_S if random.Random(seed).random() < 0.1 else SHORT_S
        return await super().reset(task, seed=seed)

    async def step(self, action: Message) -> Step:
        """Wait, as for a tool of another machine."""
        await asyncio.sleep(self._waits)
        return await super().step(action)


def measured(ahead: int, max_age: int, steps: int = 30) -> dict[str, float]:
    """Train, and return the share of dropped groups, and the ages of the others."""
    environment = {"id": f"{__file__}:HeavyTail", "tools": ["calculator"], "max_turns": 2}
    rows = steps_of(steps, environment=environment, schedule={"ahead": ahead, "max_age": max_age})[1:]

    def each(name: str) -> list[float]:
        return [row.get(name, 0.0) for row in rows]

    dropped = sum(each("stream/too_old"))
    return {
        "ahead": ahead,
        "max_age": max_age,
        "dropped": round(dropped / (dropped + 8 * len(rows)), 3),
        "age_mean": round(sum(each("stream/age_mean")) / len(rows), 2),
        "age_max": max(each("stream/age_max")),
    }


if __name__ == "__main__":
    for ahead, max_age in ((1, 1), (1, 3), (1, 100), (2, 4), (2, 100)):
        print(json.dumps(measured(ahead, max_age)), flush=True)
