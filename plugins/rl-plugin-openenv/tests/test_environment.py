"""Episodes of the demo, and the forms of actions and observations."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError
from rl_plugin_openenv.config import DataConfig, EnvironmentConfig
from rl_plugin_openenv.dataset import SeededTasks
from rl_plugin_openenv.demo import COLORS
from rl_plugin_openenv.environment import OpenEnvChat, check
from rl_plugin_openenv.observations import Viewer
from rl_plugin_openenv.schemas import CallAction, FormAction, TextAction, action_of
from rlcore import event_loop
from rlcore.errors import DataError
from rlcore.types import Message, Observation, Task, ToolCall

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
OWN = {"metadata": {"type": "object"}}


def first_of(task: Task) -> Observation:
    async def reset() -> Observation:
        environment = OpenEnvChat(EnvironmentConfig())
        try:
            return await environment.reset(task, seed=1)
        finally:
            await environment.close()

    return event_loop.run(reset())


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {"message": {"type": "string"}, **OWN}}, TextAction("message")),
        ({"properties": {"code": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, TextAction("code")),
        (
            {"properties": {"move": {"$ref": "#/$defs/M"}}, "$defs": {"M": {"type": "string", "enum": ["up"]}}},
            TextAction("move"),
        ),
        ({"properties": {"type": {}, "tool_name": {}, "arguments": {}, **OWN}}, CallAction()),
        ({"properties": OWN}, CallAction()),
    ],
)
def test_schema_tells_the_kind_of_action(schema: Any, kind: Any) -> None:
    assert action_of(schema) == kind


@pytest.mark.parametrize("properties", [{"column": {"type": "integer"}}, {"x": {"type": "string"}, "y": {}}])
def test_other_actions_are_a_tool_with_the_fields_of_the_action(properties: Any) -> None:
    action = action_of({"properties": {**properties, **OWN}, "required": [*properties, "metadata"]})
    assert isinstance(action, FormAction)
    assert list(action.tool.parameters["properties"]) == list(properties)
    assert list(action.tool.parameters["required"]) == list(properties)


@pytest.mark.parametrize(
    ("show", "observation", "text"),
    [
        ([], {"text": "hello\n", "metadata": {"a": "b"}}, "hello"),
        ([], {"board": [[0, 1]], "legal": [1], "note": "", "over": None}, "board: [[0, 1]]\nlegal: [1]"),
        (["legal", "missing"], {"board": [[0, 1]], "legal": [1]}, "legal: [1]"),
        ([], {"metadata": {"status": "ready", "steps": 0}}, "ready"),
        ([], {"screenshot": PICTURE, "goal": "x"}, "screenshot: [image]\ngoal: x"),
    ],
)
def test_fields_of_an_observation_are_shown(show: list[str], observation: Any, text: str) -> None:
    assert Viewer(show, pictures=False).shown(observation).text == text


def test_images_are_taken_out_of_the_text() -> None:
    shown = Viewer([], pictures=True).shown({"views": [PICTURE, f"data:image/png;base64,{PICTURE}"], "goal": "x"})
    assert (shown.text, [len(image) for image in shown.images]) == ("goal: x", [68, 68])
    parts = [{"type": "text", "text": "seen"}, {"type": "image", "data": PICTURE}]
    shown = Viewer([], pictures=True).result({"content": parts})
    assert (shown.text, len(shown.images)) == ("seen", 1)


def test_seeds_and_prompts_are_those_of_the_task() -> None:
    tasks = SeededTasks(DataConfig(prompt="Choose a door.", reset={"level": 2}, train=8, evaluation=8))
    first = first_of(tasks.tasks("train")[0])
    assert first.messages[0].text == "Choose a door."
    assert first == first_of(tasks.tasks("train")[0])
    shown = {
        split: [first_of(task).messages[1].text for task in tasks.tasks(split)] for split in ("train", "evaluation")
    }
    doors = {split: {frozenset(text.split()[3:]) for text in texts} for split, texts in shown.items()}
    assert not doors["train"] & doors["evaluation"]
    assert len(doors["train"]) > 2


def test_demonstrations_are_episodes_of_examples() -> None:
    data = SeededTasks(DataConfig(examples=["red", "blue"]), lambda: OpenEnvChat(EnvironmentConfig()))
    shown = list(data.demonstrations(6, seed=1))
    assert shown == list(data.demonstrations(6, seed=1)) != list(data.demonstrations(6, seed=2))
    answers = {message.text for one in shown for message in one.messages if message.role == "assistant"}
    assert answers == {"red", "blue"}
    assert all(one.messages[-1].role == "assistant" for one in shown)
    with pytest.raises(DataError, match="examples"):
        next(iter(SeededTasks(DataConfig()).demonstrations(1, seed=0)))


def test_run_without_a_server_is_rejected_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    class Resolved:
        options = EnvironmentConfig(url="http://127.0.0.1:9")

    (found,) = check(None, Resolved)
    assert (found.status, found.key, found.fix[:16]) == ("fail", "environment.url", "start the server")
    assert "127.0.0.1:9/schema" in found.text
    Resolved.options = EnvironmentConfig(url="http://example.org", api_key_env="NO_SUCH_KEY")
    (found,) = check(None, Resolved)
    assert "NO_SUCH_KEY is not set" in found.text


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a", "http://user:secret@host", "http://"])
def test_invalid_addresses_are_rejected_without_their_secrets(url: str) -> None:
    with pytest.raises(ValidationError) as error:
        EnvironmentConfig(url=url)
    assert "secret" not in error.value.errors()[0]["msg"]


def test_a_server_scores_an_answer_that_a_token_limit_cut() -> None:
    async def cut(written: Message | None) -> float | None:
        environment = OpenEnvChat(EnvironmentConfig())
        try:
            await environment.reset(Task(id="a", messages=(), fields={"seed": 1}), seed=0)
            return (await environment.cut(written)).reward
        finally:
            await environment.close()

    rewards = [event_loop.run(cut(Message(role="assistant", content=color))) for color in COLORS]
    assert sorted(map(str, rewards)) == ["0.0"] * 5 + ["1.0"]
    assert event_loop.run(cut(None)) == 0.0


def test_step_after_the_end_raises() -> None:
    async def play() -> None:
        environment = OpenEnvChat(EnvironmentConfig(max_turns=1))
        await environment.reset(Task(id="a", messages=(), fields={}), seed=0)
        await environment.step(Message(role="assistant", tool_calls=(ToolCall(name="x", arguments={}),)))
        with pytest.raises(RuntimeError):
            await environment.step(Message(role="assistant"))
        await environment.close()
        await environment.close()

    event_loop.run(play())
