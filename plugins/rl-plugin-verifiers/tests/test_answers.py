"""What a taskset asks for, and what it gets, without verifiers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from rl_plugin_verifiers.config import EnvironmentConfig
from rl_plugin_verifiers.messages import answer, read_message
from rl_plugin_verifiers.process import process_of, world_of
from rl_plugin_verifiers.reward import verifiers_score
from rlcore.errors import UserError
from rlcore.testing import make_trajectory
from rlcore.testing.harnesses import SilentPolicy
from rlcore.types import Message, Task, ToolCall


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "no valid messages"),
        ({"messages": 3}, "no valid messages"),
        ({"messages": [None]}, "no valid messages"),
        ({"messages": [{"role": "captain", "content": "hello"}]}, "no valid messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{", "name": "a"}}]}]},
            "line 1",
        ),
        ({"messages": [{"role": "user", "content": "a"}], "tools": [{"function": {}}]}, "no valid messages"),
    ],
)
def test_a_request_that_is_not_valid_is_refused(body: Mapping[str, Any], reason: str) -> None:
    policy = SilentPolicy(1)
    assert reason in asyncio.run(answer(policy, body))["refused"]
    assert policy.requests == 0


def test_the_policy_answers_until_its_turns_are_used_up() -> None:
    policy, body = SilentPolicy(1), {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5}
    first, second = (asyncio.run(answer(policy, body)) for _ in range(2))
    assert first["body"]["choices"][0]["message"] == {"role": "assistant", "content": ""}
    assert second == {"ended": True}


def test_calls_are_read_as_they_were_written() -> None:
    function = {"name": "add", "arguments": json.dumps({"amount": 2})}
    read = read_message({"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": function}]})
    assert read == Message(role="assistant", tool_calls=(ToolCall(name="add", arguments={"amount": 2}, id="x"),))


def test_the_reward_is_the_score_of_the_taskset_or_missing() -> None:
    task, trajectory = Task(id="a", messages=()), make_trajectory("question", "answer")
    scored = trajectory.replace(
        metrics={"verifiers": 0.5, "verifiers/reward/right": 1.0, "verifiers/metric/off_by": 3.0}
    )
    result = verifiers_score(scored, task)
    assert (result.value, dict(result.components)) == (0.5, {"right": 1.0, "off_by": 3.0})
    assert verifiers_score(trajectory, task).value is None


def test_an_interpreter_without_verifiers_is_an_error_with_a_fix() -> None:
    config = EnvironmentConfig(python=sys.executable)
    with pytest.raises(UserError, match="verifiers is not installed") as missing:
        process_of(config).ask("describe", timeout_s=30, world=world_of(config))
    assert "uv pip install" in str(missing.value)
