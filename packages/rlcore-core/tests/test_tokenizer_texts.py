"""Training texts for tokenizers that are built for a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlcore import DataError, Demonstration, Message, Task, ToolCall, ToolSchema
from rlcore.models.tokenizer_texts import texts_of

QUESTION = Message(role="user", content="Where is it?")
LOOK = ToolSchema(name="look", description="Look.", parameters={"type": "object", "properties": {"at": {}, "by": {}}})


class Rows:
    def tasks(self, split: str) -> list[Task]:
        assert split == "train"  # never train on held-out tasks
        return [Task(id="1", messages=(Message(role="user", content="Half a pair: \ud83d"),))]


class Shown(Rows):
    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        call = ToolCall(name="look", arguments={"at": ("a", "b")}, id="1")
        answer = Message(role="tool", content="There.", name="look", tool_call_id="1")
        yield Demonstration(messages=(QUESTION, Message(role="assistant", tool_calls=(call,)), answer), tools=(LOOK,))


class Failing(Rows):
    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        raise DataError("there are none")


class Own(Shown):
    def texts(self) -> list[str]:
        return ["mine"]


@pytest.mark.parametrize("dataset", [Rows(), Failing()])
def test_tasks_without_demonstrations_are_sufficient(dataset: Rows) -> None:
    assert list(texts_of(dataset)) == ["Half a pair: ?"]  # type: ignore[arg-type]


def test_demonstrations_include_tools_and_calls() -> None:
    assert list(texts_of(Shown())) == [
        "tools: look(at, by)",
        "Where is it?",
        '{"name": "look", "arguments": {"at": ["a", "b"]}}',
        "There.",
        "Half a pair: ?",
    ]


def test_texts_of_the_dataset_take_precedence() -> None:
    assert list(texts_of(Own())) == ["mine"]
