from __future__ import annotations

import math

from rlcore.testing import RewardCase, check_plugin, make_trajectory
from rlcore.types import Message, Task

PATH = ("down", "down", "right", "right", "down", "right")
"""The shortest way over the frozen lake."""
EMPTY = RewardCase(task=Task(id="a", messages=()), trajectory=make_trajectory("down"), value=0.0)
FULL = RewardCase(task=EMPTY.task, trajectory=make_trajectory("down", metrics={"step_reward": -2.5}), value=-2.5)


def oracle(task: Task) -> list[Message]:
    return [Message(role="assistant", content=step) for step in PATH]


def test_plugin_conforms() -> None:
    assert math.isfinite(FULL.value or 0.0)
    check_plugin("gymnasium", oracles={"gymnasium": oracle}, cases={"gymnasium-return": [EMPTY, FULL]})
