"""Steps of 64 rollouts of the calculator environment, whose tasks arrive after 0.2 to 2 s, with a tiny model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from rl_plugin_gsm8k_tools.config import EnvironmentConfig
from rl_plugin_gsm8k_tools.environment import Gsm8kTools
from rlcore.session.session import RunSession
from rlcore.types import Observation, Task, Trajectory
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer

VERSIONS = ("rlcore-core", "rlcore-rollout", "rlcore-trainer", "torch")
LEAST_S, MOST_S = 0.2, 2.0


class Slow(Gsm8kTools):
    """The calculator environment, which waits before a task."""

    Config = EnvironmentConfig

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Wait, as for a tool of another machine."""
        await asyncio.sleep(random.Random(seed).uniform(LEAST_S, MOST_S))
        return await super().reset(task, seed=seed)


def noise(trajectory: Trajectory, task: Task) -> float:
    """A reward that differs between siblings, so that all of them are trained."""
    return trajectory.sibling / 8


class Timed(RunSession):
    """A run that stores its metrics."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self.rows: list[Mapping[str, float]] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store the metrics of a step."""
        self.rows.append(metrics)

    def say(self, *lines: str) -> None:
        """Print nothing."""


def steps_of(steps: int, **tables: Mapping[str, Any]) -> list[Mapping[str, float]]:
    """Train with further tables of configuration, and return the metrics of each step."""
    values = {
        "model": {"path": "builtin:tiny-qwen2", "device": "cpu"},
        "environment": {"id": f"{__file__}:Slow", "tools": ["calculator"], "max_turns": 2},
        "data": {"id": "gsm8k-tools", "train": "generated"},
        "reward": [{"id": f"{__file__}:noise"}],
        "rollout": {"group_size": 8, "max_new_tokens": 40},
        "trainer": {"id": "policy-gradient", "steps": steps, "tasks_per_step": 8, "learning_rate": 1e-5},
        "evaluation": {"every": 0},
        **tables,
    }
    run = Timed.create(values)
    assert isinstance(run, Timed)
    PolicyGradientTrainer(run).train()
    run.finished()
    return run.rows
