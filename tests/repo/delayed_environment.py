"""An environment with random delays, so that the order in which trajectories advance differs between runs."""

from __future__ import annotations

import asyncio
import random

from rl_plugin_gsm8k_tools.config import EnvironmentConfig
from rl_plugin_gsm8k_tools.environment import Gsm8kTools
from rlcore.types import Message, Observation, Step, Task

LONGEST_S = 0.03
CLOCK = random.SystemRandom()


class Delayed(Gsm8kTools):
    """The calculator environment with random delays."""

    Config = EnvironmentConfig

    async def reset(self, task: Task, *, seed: int) -> Observation:
        await asyncio.sleep(CLOCK.uniform(0, LONGEST_S))
        return await super().reset(task, seed=seed)

    async def step(self, action: Message) -> Step:
        await asyncio.sleep(CLOCK.uniform(0, LONGEST_S))
        return await super().step(action)
