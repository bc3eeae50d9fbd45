from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from rl_plugin_gsm8k_tools.annotations import MOST_CALLS, AnnotationParser
from rl_plugin_gsm8k_tools.calculator import evaluate
from rl_plugin_gsm8k_tools.config import DataConfig
from rl_plugin_gsm8k_tools.dataset import Gsm8kData
from rlcore.errors import UserError
from rlcore.types import ToolCall

PARSER = AnnotationParser()


@pytest.mark.parametrize(
    ("text", "content", "expressions"),
    [
        ("Natalia sold\n<<48/2>>", "Natalia sold", ["48/2"]),
        ("<< 1 + 2 >>", "", ["1 + 2"]),
        ("a <<1+2>> b <<3*4>> c", "a\nb\nc", ["1+2", "3*4"]),
        ("<<48/2=24>>24", "24", ["48/2=24"]),
        ("1 < 2 and 3 > 2\n#### 5", "1 < 2 and 3 > 2\n#### 5", []),
        ("", "", []),
    ],
)
def test_annotations_are_calls(text: str, content: str, expressions: list[str]) -> None:
    found, calls = PARSER.parse(text)
    assert found == content
    assert [call.arguments for call in calls] == [{"expression": expression} for expression in expressions]
    assert [call.id for call in calls] == [f"call_{index}" for index in range(len(expressions))]
    assert all(call.name == "calculator" and call.error is None for call in calls)


@pytest.mark.parametrize("text", ["sold <<48/2", "<<48/2\n>>", "<<48/2>", "<<4<8>>"])
def test_open_annotation_is_a_call_with_an_error(text: str) -> None:
    _, (call,) = PARSER.parse(text)
    assert call.arguments is None
    assert "not closed" in str(call.error)


def test_rendered_call_is_parsed_to_the_same_call() -> None:
    call = ToolCall(name="calculator", arguments={"expression": "48/2"}, id="call_0")
    assert PARSER.render(call) == "<<48/2>>"
    assert PARSER.parse(PARSER.render(call)) == ("", (call,))
    assert evaluate("48/2=24") == 24


@pytest.mark.parametrize("arguments", [{}, {"expression": 3}, {"expression": "1", "digits": 2}])
def test_other_calls_cannot_be_written(arguments: dict[str, object]) -> None:
    with pytest.raises(UserError) as caught:
        PARSER.render(ToolCall(name="calculator", arguments=arguments, id="call_0"))
    assert caught.value.where == "model.tool_parser"
    with pytest.raises(UserError):
        PARSER.render(ToolCall(name="search", arguments={"expression": "1"}, id="call_0"))


@pytest.mark.parametrize("text", ["<<" * 200_000, "<<1>>" * 100_000, "<<" + "1" * 400_000])
def test_hostile_text_is_parsed_quickly(text: str) -> None:
    started = time.process_time()
    _, calls = PARSER.parse(text)
    assert time.process_time() - started < 2
    assert len(calls) <= MOST_CALLS


def test_every_turn_of_gsm8k_is_parsed_as_it_was_written() -> None:
    folder = os.environ.get("RLCORE_DATA")
    if not folder:
        pytest.skip("RLCORE_DATA is not set")
    data = Gsm8kData(DataConfig(train=[str(Path(folder, "gsm8k", "test.jsonl"))]))
    turns = [
        message
        for shown in data.demonstrations(1301, seed=0)
        for message in shown.messages
        if message.role == "assistant"
    ]
    assert len(turns) > 4000
    for turn in turns:
        written = "\n".join([turn.text, *map(PARSER.render, turn.tool_calls)])
        content, calls = PARSER.parse(written)
        assert content == turn.text
        assert [call.arguments for call in calls] == [call.arguments for call in turn.tool_calls]
