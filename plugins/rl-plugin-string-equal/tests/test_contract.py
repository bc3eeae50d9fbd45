"""The plugin and its rewards conform to the contracts of rlcore."""

from __future__ import annotations

from typing import Any

import pytest
from rlcore.testing import RewardCase, check_plugin, check_reward, make_trajectory
from rlcore.types import Message, Task

QUESTION = Message(role="user", content="How much is 48 + 24?")
TOOL_RESULT = Message(role="tool", content="72", name="calculator")


def case(response: str, answer: Any, value: float, *, tool: bool = True) -> RewardCase:
    task = Task(id="1", messages=(QUESTION,), fields={"answer": answer})
    before = (QUESTION, "", TOOL_RESULT) if tool else (QUESTION,)
    return RewardCase(task=task, trajectory=make_trajectory(*before, response, task_id="1"), value=value)


def test_plugin_conforms() -> None:
    check_plugin("string-equal")


@pytest.mark.parametrize(
    ("reward", "cases"),
    [
        ("string-equal", [case("seventy-two", "Seventy-two", 1), case("72", 72, 1), case("71", "72", 0)]),
        ("math-numeric-equal", [case("The answer is $72.00.", "72", 1), case("7/2", 3.5, 1), case("71", "72", 0)]),
        (
            "math-reward-string-equal",
            [case("So 72", "72", 1), case("So 71", "72", 0.1), case("So 72", "72", 0, tool=False)],
        ),
    ],
)
def test_reward_conforms(reward: str, cases: list[RewardCase]) -> None:
    check_reward(reward, cases)
