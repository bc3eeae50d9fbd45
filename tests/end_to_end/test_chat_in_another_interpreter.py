"""Environments with chat messages in another process, through the agent loop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import talkers
from rlcore import Message, Task, ToolCall
from rlcore.errors import EnvironmentFailure, PluginError, UserError
from rlcore.plugins.registry import Registry, any_options
from rlcore.session.checks import check_run
from rlcore.session.session import RunSession
from rlcore.specs import EnvironmentSpec
from rlcore.transport.hosting import HostedEnvironments, interpreters

FILE = talkers.__file__


def hosted(target: str = "Guess", python: str = sys.executable) -> HostedEnvironments:
    spec = EnvironmentSpec(id=f"{FILE}:{target}", target=f"{FILE}:{target}")
    return HostedEnvironments(interpreters(spec, python), spec=spec, options=any_options()(), timeout_s=30)


def values(**environment: object) -> dict[str, object]:
    return {
        "model": {"path": "builtin:tiny-qwen2"},
        "environment": {"id": f"{FILE}:Guess", "python": sys.executable, **environment},
        "data": {"id": f"{FILE}:Rows"},
        "reward": [{"id": f"{FILE}:always_half"}],
    }


def test_an_episode_crosses_with_pictures_and_tool_calls() -> None:
    run = RunSession.create(values(top=7), purpose="evaluation")
    environment = run.environment()
    task = Task(id="t0", messages=(Message(role="system", content="Guess."),), fields={"kind": "numbers"})
    first = environment.reset(task, seed=3)
    assert first.messages[0] == task.messages[0]
    assert first.messages[1].text == "t0 of numbers: sibling 0 below 7"
    assert first.images == (talkers.PICTURE,)
    call = ToolCall(name="look", arguments={"at": "left"})
    step = environment.step(Message(role="assistant", content="4", tool_calls=(call,)))
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert step.observation.messages[0].text == f"{version} {{'look': {{'at': 'left'}}}}"
    assert (step.reward, step.terminated, dict(step.info)) == (1.0, False, {"hit": False})
    environment.close()
    run.discard()


def test_a_dead_process_fails_one_episode_and_the_next_has_another() -> None:
    processes = hosted()
    task = talkers.Rows().tasks("train")[0]
    for _ in range(2):
        episode = processes.make()
        episode.reset(task, seed=0)
        with pytest.raises(EnvironmentFailure, match="ValueError: I do not like it"):
            episode.step(Message(role="assistant", content="raise"))
        with pytest.raises(EnvironmentFailure, match="SIGABRT"):
            episode.step(Message(role="assistant", content="die"))
        episode.close()
    processes.close()


def test_processes_of_ended_episodes_are_used_again() -> None:
    processes = hosted()
    first = processes.take()
    processes.put_back(first)
    assert processes.take() is first
    processes.put_back(first)
    processes.close()
    assert not first.usable


def test_the_check_before_a_run_names_the_interpreter() -> None:
    run = RunSession.create(values(), purpose="evaluation")
    assert any(f"runs in {sys.executable} (Python 3." in note for note in check_run(run))
    run.discard()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"python": "/absent/python"}, "no interpreter"),
        ({"id": f"{FILE}:Missing"}, "cannot be imported in another interpreter"),
        ({"python": str(Path(FILE).parent)}, "needs the program of an interpreter"),
    ],
)
def test_a_wrong_interpreter_or_path_is_a_user_error(keys: dict[str, str], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        RunSession.create(values(**keys), purpose="evaluation")


def test_a_wrong_key_is_found_before_the_run() -> None:
    run = RunSession.create(values(bottom=3), purpose="evaluation")
    with pytest.raises(UserError, match="does not work in another interpreter"):
        check_run(run)
    run.discard()


def test_the_attributes_of_a_class_come_from_its_interpreter() -> None:
    registry = Registry()
    registry.host("os:getpid", sys.executable, {})
    spec = registry.spec("environment", "os:getpid")
    assert isinstance(spec, EnvironmentSpec)
    assert spec.action == "chat"
    registry.host("os:absent", sys.executable, {})
    with pytest.raises(PluginError, match="cannot be imported"):
        registry.spec("environment", "os:absent")
