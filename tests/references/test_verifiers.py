"""Tasksets of verifiers, played by verifiers itself.

Requires the project ``verifiers`` in this folder, or its interpreter in ``RLCORE_VERIFIERS``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rl_plugin_verifiers import process as verifiers_process
from rl_plugin_verifiers.config import DataConfig, EnvironmentConfig
from rl_plugin_verifiers.dataset import TasksetData
from rl_plugin_verifiers.environment import Verifiers
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import DataError, EnvironmentFailure, UserError
from rlcore.testing import check_plugin
from rlcore.testing.harnesses import SilentPolicy
from rlcore.types import ChatCompletion, FrozenDict, Message, Response, Step, Task, ToolCall, ToolSchema

sys.path.insert(0, str(Path(__file__).parent))

import peers

pytestmark = pytest.mark.skipif(
    not os.environ.get("RLCORE_VERIFIERS") and bool(peers.missing("verifiers")), reason=peers.missing("verifiers")
)
TASKSETS = Path(__file__).parent / "verifiers" / "tasksets"
Say = Callable[[Sequence[Message]], Message]


class Speaker(SilentPolicy):
    """Answers what a function of the conversation says."""

    def __init__(self, say: Say) -> None:
        super().__init__(max_turns=50)
        self.say = say
        self.tools: Sequence[ToolSchema] = ()

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Any = (),
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Response:
        self.tools = tools
        turn = (await super().respond(messages, tools=tools, sampling=sampling)).turn
        return Response(turn, ChatCompletion(message=self.say(messages), finish_reason="stop"))


def said(text: str) -> Say:
    return lambda messages: Message(role="assistant", content=text)


@pytest.fixture(scope="module", autouse=True)
def python() -> str:
    """The interpreter, which all tests share."""
    os.environ.setdefault("RLCORE_VERIFIERS", str(Path(__file__).parent / "verifiers" / ".venv" / "bin" / "python"))
    return os.environ["RLCORE_VERIFIERS"]


@pytest.fixture(scope="module")
def shared(python: str) -> Iterator[EnvironmentConfig]:
    """A configuration that stays alive, and so does its process."""
    config = EnvironmentConfig()
    yield config
    verifiers_process.process_of(config).kill()


@pytest.fixture
def world(shared: EnvironmentConfig, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EnvironmentConfig]:
    """Makes configurations of tasksets in this folder. They share a process, because its start takes seconds."""
    monkeypatch.setattr(
        "rl_plugin_verifiers.environment.process_of", lambda config: verifiers_process.process_of(shared)
    )
    monkeypatch.setattr("rl_plugin_verifiers.dataset.process_of", lambda config: verifiers_process.process_of(shared))

    def make(name: str, **options: Any) -> EnvironmentConfig:
        return EnvironmentConfig(taskset=str(TASKSETS / f"{name}.py"), options=options, max_turns=6)

    return make


def tasks(config: EnvironmentConfig, split: str = "train", **data: Any) -> Sequence[Task]:
    return TasksetData(DataConfig(**{"evaluation": 1, **data}), environment=lambda: Verifiers(config)).tasks(split)


def play(config: EnvironmentConfig, task: Task, policy: Speaker, timeout_s: float = 30.0) -> Step:
    async def run() -> Step:
        with closing(EpisodeContext(task)) as context:
            async with asyncio.timeout(timeout_s):
                return await Verifiers(config).run(task, policy=policy, seed=0, context=context)

    return asyncio.run(run())


@pytest.mark.slow
def test_plugin_fulfils_the_contracts() -> None:
    check_plugin("verifiers")


@pytest.mark.slow
def test_a_task_with_tools_is_scored_by_what_the_tools_did(world: Callable[..., EnvironmentConfig]) -> None:
    config = world("ledger")
    (task,) = tasks(config, "evaluation")

    def say(messages: Sequence[Message]) -> Message:
        answers = [message for message in messages if message.role == "tool"]
        if len(answers) == 2:
            return Message(role="assistant", content=f"It is {answers[-1].text}.")
        calls = (("ledger_add", {"amount": 2}), ("ledger_add", {"amount": 3}), ("missing", {}))[len(answers) :]
        made = (ToolCall(name=name, arguments=values, id=f"call_{name}_{len(answers)}") for name, values in calls[:1])
        return Message(role="assistant", tool_calls=tuple(made))

    policy = Speaker(say)
    step = play(config, task, policy)
    assert [(tool.name, tool.description) for tool in policy.tools] == [("ledger_add", "Add an amount to the ledger.")]
    assert task.messages[0] == Message(role="system", content="Use the ledger.")
    assert (step.terminated, step.info["verifiers"], step.info["verifiers/reward/booked"]) == (True, 1.0, 1.0)

    wrong = play(config, task, Speaker(said("5")))  # told, but not booked
    assert wrong.info["verifiers"] == 0.75

    def endless(messages: Sequence[Message]) -> Message:
        call = ToolCall(name="ledger_add", arguments={"amount": "many"}, id=f"call_{len(messages)}")
        return Message(role="assistant", tool_calls=(call,))

    cut = play(config, task, Speaker(endless))
    assert (cut.truncated, cut.info["verifiers"]) == (True, 0.0)


@pytest.mark.slow
def test_an_endless_taskset_plays_the_user(world: Callable[..., EnvironmentConfig]) -> None:
    config = world("guessing", largest=8)
    found = tasks(config, evaluation=3, train=100)
    assert [task.id for task in found[:2]] == ["guess-3", "guess-4"]
    assert len(found) == 100

    def bisect(messages: Sequence[Message]) -> Message:
        low, high = 1, 8
        for asked, answer in zip(messages[1::2], messages[2::2], strict=True):
            low, high = (int(asked.text) + 1, high) if answer.text == "higher" else (low, int(asked.text) - 1)
        return Message(role="assistant", content=str((low + high) // 2))

    step = play(config, found[0], Speaker(bisect))
    assert step.info["verifiers/reward/guessed"] == 1.0
    assert 1 <= step.info["verifiers/metric/guesses"] <= 4
    lost = play(config, found[0], Speaker(said("0")))
    assert (lost.truncated, lost.info["verifiers"]) == (True, 0.0)


@pytest.mark.long
def test_what_fails_is_not_scored(world: Callable[..., EnvironmentConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers_process, "REACTS_S", 1.0)
    config = world("faulty")
    by_name = {task.fields["data"]["name"]: task for task in tasks(config)}
    assert play(config, by_name["none-again"], Speaker(said("hello"))).info["verifiers"] == 1.0
    assert play(config, by_name["prints"], Speaker(said("hello"))).info["verifiers"] == 1.0
    for name, reason in {
        "raises": "ZeroDivisionError: a fault",
        "not-finite": "no finite number",
        "many": "recorded 1,001 rewards and metrics; the limit is 256",
        "exits": "SystemExit: 3",
        "setup": "no disk",
        "ends": "exit status 9",
    }.items():
        with pytest.raises(EnvironmentFailure, match=reason):
            play(config, by_name[name], Speaker(said("hello")))
    play(config, by_name["none-again"], Speaker(said("hello")))  # in a new process
    with pytest.raises(TimeoutError):
        play(config, by_name["waits"], Speaker(said("hello")), timeout_s=1)
    assert play(config, by_name["none-again"], Speaker(said("hello"))).info["verifiers"] == 1.0
    with pytest.raises(TimeoutError):
        play(config, by_name["blocks"], Speaker(said("hello")), timeout_s=1)
    with pytest.raises(EnvironmentFailure, match="did not react"):
        play(config, by_name["none-again"], Speaker(said("hello")))


@pytest.mark.slow
def test_what_cannot_be_used_is_refused_with_the_reason(world: Callable[..., EnvironmentConfig]) -> None:
    for config, reason in (
        (world("contained"), "run in containers"),
        (world("faulty", broken="container"), "the container image 'python:3.12'"),
        (world("faulty", broken="huge"), "the limit is 1,048,576"),
        (world("missing"), "there is no file"),
    ):
        with pytest.raises(UserError, match="the taskset cannot be used") as refused:
            tasks(config, "evaluation")
        assert reason in str(refused.value)
    for config, reason in (
        (world("faulty", broken="load"), "no data"),
        (world("faulty", unknown=1), "unknown"),
        (EnvironmentConfig(taskset="no-such-taskset"), "not found"),
    ):
        with pytest.raises(DataError, match=reason):
            tasks(config, "evaluation")
