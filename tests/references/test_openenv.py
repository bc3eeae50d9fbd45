"""The plugin openenv with OpenEnv's own package: its servers, and its clients on our server.

They are installed from the lock of ``tests/references/openenv``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openenv_servers import openenv_servers
from preloaded import rlcore_command
from rl_plugin_openenv.config import DataConfig, EnvironmentConfig
from rl_plugin_openenv.dataset import SeededTasks
from rl_plugin_openenv.environment import OpenEnvChat, OpenEnvPictures
from rlcore import event_loop
from rlcore.errors import EnvironmentFailure
from rlcore.images import image_size
from rlcore.testing import check_environment
from rlcore.types import Message, Observation, Step, Stop, ToolCall

sys.path.insert(0, str(Path(__file__).parent))

import peers

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
(TASK,) = SeededTasks(DataConfig(train=1)).tasks("train")
TOKEN = "a token of the test"


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def called(name: str, **arguments: Any) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(name=name, arguments=arguments, id="0"),))


def played(
    url: str, actions: Sequence[Message], kind: type[OpenEnvChat] = OpenEnvChat, **options: Any
) -> tuple[Observation, list[Step]]:
    """The first observation and the steps of an episode."""

    async def play() -> tuple[Observation, list[Step]]:
        environment = kind(EnvironmentConfig(url=url, **options))
        try:
            first = await environment.reset(TASK, seed=0)
            return first, [await environment.step(action) for action in actions]
        finally:
            await environment.close()

    return event_loop.run(play())


def texts(step: Step) -> list[str]:
    return [message.text for message in step.observation.messages]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with openenv_servers() as url:
        yield url


def test_answer_is_the_action_of_a_server_with_one_text_field(servers: str) -> None:
    (text,) = [message.text for message in played(f"{servers}/doors", [])[0].messages]
    color = text.removeprefix("key ").partition(" doors ")[0]
    first, steps = played(f"{servers}/doors", [said("gray"), said(f"{color} ")])
    assert first.messages[0].text == text
    assert [(texts(step), step.reward, step.terminated) for step in steps] == [
        ([f"closed key {color}"], 0.0, False),
        (["open"], 0.5, True),
    ]


def test_turns_are_limited(servers: str) -> None:
    _, (step,) = played(f"{servers}/doors", [said("gray")], max_turns=1)
    assert (step.terminated, step.truncated, step.stop, step.reward) == (False, True, Stop.MAX_TURNS, 0.0)


def test_action_of_several_fields_is_a_tool(servers: str) -> None:
    wrong = called("act", direction="up", steps="far")
    first, steps = played(f"{servers}/grid", [said("right"), wrong, called("act", direction="right", steps=9)])
    (tool,) = first.tools
    assert (tool.name, tool.description, tool.parameters["required"]) == ("act", "Walk along the line.", ("direction",))
    assert tool.parameters["properties"]["direction"]["enum"] == ("left", "right")
    assert first.messages[0].text == "position: 0\ngoal: 9"
    assert "Call the tool act" in texts(steps[0])[0]
    assert "direction: Input should be 'left' or 'right'; steps: " in texts(steps[1])[0]
    assert [step.reward for step in steps] == [None, None, 1.0]
    assert steps[2].terminated


def test_tools_of_a_server_are_called(servers: str) -> None:
    call = ToolCall(name="add", arguments={"first": 3, "second": 4}, id="0")
    wrong = ToolCall(name="add", arguments={"first": "x"}, id="1")
    both = Message(role="assistant", tool_calls=(call, wrong))
    first, (step,) = played(f"{servers}/tools", [both])
    assert [(tool.name, tool.description) for tool in first.tools] == [("add", "Add two numbers.")]
    assert first.messages[0].text == "add 3 and 0"
    assert texts(step)[0] == "7"
    assert texts(step)[1].startswith("Error: ")
    assert (step.reward, step.terminated) == (1.0, True)


def test_images_are_shown(servers: str) -> None:
    first, (step,) = played(f"{servers}/picture", [said("a square")], OpenEnvPictures)
    assert [image_size(image) for image in (*first.images, *step.observation.images)] == [(32, 32), (32, 32)]
    assert first.messages[0].images
    assert "What do you see?" in first.messages[0].text
    first, _ = played(f"{servers}/picture", [], show=["caption"])
    assert first.messages[0].text == "What do you see?"


def test_missing_reward_is_not_zero_and_an_exception_fails_the_episode(servers: str) -> None:
    _, (step,) = played(f"{servers}/moods", [said("end")])
    assert (step.reward, step.terminated) == (None, True)
    with pytest.raises(EnvironmentFailure, match="EXECUTION_ERROR: the simulator broke"):
        played(f"{servers}/moods", [said("raise")])


def test_episodes_wait_for_a_server_with_one_session(servers: str) -> None:
    async def play() -> float | None:
        environment = OpenEnvChat(EnvironmentConfig(url=f"{servers}/single"))
        try:
            first = await environment.reset(TASK, seed=0)
            return (await environment.step(said(first.messages[0].text.split()[1]))).reward
        finally:
            await environment.close()

    async def together() -> list[float | None]:
        return await asyncio.gather(*(play() for _ in range(6)))

    assert event_loop.run(together()) == [1.0] * 6


@pytest.mark.parametrize("name", ["doors", "grid", "tools"])
def test_environment_on_a_real_server_conforms(servers: str, name: str) -> None:
    options = {"url": f"{servers}/{name}", "max_turns": 4}
    check_environment("openenv", options=options, tasks=[TASK], needs_oracle=False)


@contextmanager
def our_server(*arguments: str) -> Iterator[str]:
    """The URL of ``rlcore serve openenv``."""
    command = [str(Path(sys.executable).parent / "rlcore"), "serve", "openenv", *arguments, "--port", "0"]
    environment = {**os.environ, "RLCORE_SERVER_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("serving"))
            yield line.split(" on ")[1].split(",")[0]
        finally:
            process.terminate()


def driven(kind: str, url: str) -> Any:
    """What the clients of OpenEnv saw."""
    done = subprocess.run(
        peers.command("openenv", "drive.py", kind, url, TOKEN),
        env=peers.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_clients_of_openenv_play_sessions_of_our_server_at_a_time() -> None:
    with our_server("-p", "openenv") as url:
        games = driven("game", url)
    assert len({first for first, *_ in games}) > 4
    for seed, (first, reward, done, state, rejected) in enumerate(games):
        color = first.split()[1]
        assert color in first.split()[3:]
        assert (reward, done) == (1.0 if seed % 2 else 0.5, True)
        assert state == {"episode_id": f"episode-{seed}", "step_count": 2 - seed % 2, "task_id": state["task_id"]}
        assert "VALIDATION_ERROR" in rejected


def test_clients_of_openenv_call_the_tools_of_our_environment() -> None:
    with our_server("-p", "gsm8k-tools") as url:
        shown, tools, answer, last = driven("tools", url)
    assert shown
    assert [tool["name"] for tool in tools] == ["calculator"]
    assert answer == "42"
    assert last == [0.0, True, {"stop": "done"}]


@pytest.mark.parametrize(
    ("plugin", "found"), [("robotwin", "of another kind"), ("visual-search", "runs code"), ("harness", "another kind")]
)
def test_environments_that_openenv_cannot_use_are_rejected(plugin: str, found: str, tmp_path: Path) -> None:
    done = rlcore_command(["serve", "openenv", "-p", plugin, "--port", "0"], tmp_path, timeout_s=120)
    assert done.returncode == 2
    assert found in done.stdout + done.stderr
