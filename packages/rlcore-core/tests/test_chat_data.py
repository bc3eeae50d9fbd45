"""The dataset ``chat``: every form of rows, and sentences that name file and line."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rlcore.chat_data import ChatData, ChatDataConfig
from rlcore.errors import DataError

TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
OPENAI: dict[str, Any] = {
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1 + "}, {"type": "text", "text": "2?"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": "3"},
    ],
    "tools": [{"type": "function", "function": TOOL}],
    "answer": 3,
}
SHARED = {
    "system": "Be brief.",
    "conversations": [
        {"from": "human", "value": "1 + 2?"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1, "b": 2}}'},
        {"from": "observation", "value": "3"},
        {"from": "gpt", "value": "3"},
    ],
    "tools": json.dumps([TOOL]),
    "answer": 3,
}


def lines(path: Path, *rows: Any) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def data(path: str, **options: Any) -> ChatData:
    return ChatData(ChatDataConfig(train=[path], **options))


def said(role: str, **fields: Any) -> dict[str, Any]:
    """A row in which ``role`` speaks after a user and an assistant with a call."""
    earlier = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    return {"messages": [*earlier, {"role": role, **fields}]}


PAIR = {
    "prompt": OPENAI["messages"][:2],
    "completion": OPENAI["messages"][2:],
    "tools": OPENAI["tools"],
    "answer": 3,
}


@pytest.mark.parametrize("row", [OPENAI, SHARED, PAIR], ids=["messages", "conversations", "prompt and completion"])
def test_all_forms_say_the_same(row: Any, tmp_path: Path) -> None:
    found = data(lines(tmp_path / "rows.jsonl", row))
    (one,) = found.conversations("train")
    assert [message.role for message in one.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [message.text for message in one.messages] == ["Be brief.", "1 + 2?", "", "3", "3"]
    (call,) = one.messages[2].tool_calls
    assert (call.name, dict(call.arguments or {})) == ("add", {"a": 1, "b": 2})
    assert [(tool.name, tool.description, tool.parameters["properties"]) for tool in one.tools] == [
        ("add", "Adds.", {"a": {}, "b": {}})
    ]
    (task,) = found.tasks("train")
    assert (task.id, dict(task.fields)) == ("rows:1", {"answer": 3})
    assert [message.role for message in task.messages] == ["system", "user"]


def test_a_pair_of_texts_is_a_question_and_its_answer(tmp_path: Path) -> None:
    found = data(lines(tmp_path / "rows.jsonl", {"prompt": "1 + 2?", "completion": "3", "answer": 3}))
    (one,) = found.conversations("train")
    assert [(message.role, message.text) for message in one.messages] == [("user", "1 + 2?"), ("assistant", "3")]
    (task,) = found.tasks("train")
    assert dict(task.fields) == {"answer": 3}


def test_a_pair_beside_messages_is_a_field_like_any_other(tmp_path: Path) -> None:
    (task,) = data(lines(tmp_path / "rows.jsonl", {**OPENAI, "prompt": "x", "completion": "y"})).tasks("train")
    assert set(task.fields) == {"answer", "prompt", "completion"}


def test_the_answer_of_a_tool_is_named_after_its_call(tmp_path: Path) -> None:
    (one,) = data(lines(tmp_path / "rows.jsonl", OPENAI)).conversations("train")
    assert (one.messages[3].name, one.messages[3].tool_call_id) == ("add", "c1")


def test_a_json_list_is_read_and_its_mistakes_have_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([OPENAI, SHARED], indent=1), encoding="utf-8")
    assert len(data(str(path)).conversations("train")) == 2
    path.write_text('[\n\n{"messages": [{"role": "user",\n "content": "x"}]},\n  {"a": 1}]', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data(str(path)).conversations("train")
    assert caught.value.where == f"{path}, line 3"
    skipping = data(str(path), on_error="skip")
    with pytest.raises(DataError, match="no conversation that can be used"):
        skipping.conversations("train")


@pytest.mark.parametrize("text", ["[1,", '["x" "y"]', "[1] [2]", "[,]", '{"messages": []}', "[1, nonsense]", "["])
def test_a_damaged_json_list_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data(str(tmp_path / "rows.json"), on_error="skip").conversations("train")
    assert str(tmp_path / "rows.json") in str(caught.value.where)


def test_an_empty_json_list_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(" [ ]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"data.train has no conversation"):
        data(str(tmp_path / "rows.json")).conversations("train")


@pytest.mark.parametrize(
    ("row", "message", "found"),
    [
        ("{", "a line of a .jsonl file must be JSON", "line 1 column 2"),
        ([1], "a row must be an object", "list [1]"),
        ({"text": "x"}, "a row needs one of the fields 'messages' and 'conversations'", "the fields text"),
        ({**OPENAI, **SHARED}, "a row needs one of the fields", "messages, tools, answer, system, conversations"),
        ({"prompt": "x"}, "or 'prompt' and 'completion'", "the fields prompt"),
        (
            {"prompt": "x", "completion": [{"role": "assistant", "content": "y"}]},
            "must be two texts, or",
            "str and list",
        ),
        ({"prompt": OPENAI["messages"], "completion": []}, "every message of the assistant is", "one in 'prompt'"),
        ({"prompt": "x", "completion": ""}, "message 2: the assistant says nothing", "str ''"),
        ({"messages": []}, "'messages' must be a list of messages", "list []"),
        ({"messages": ["x"]}, "message 1: it must be an object", "str 'x'"),
        ({"messages": [{"role": "user", "content": "x"}]}, "needs a message of the assistant", "user"),
        ({"conversations": [{"from": "me", "value": "x"}]}, "message 1: 'from' must be one of", "str 'me'"),
        (said("robot", content="x"), "message 3: 'role' must be one of", "str 'robot'"),
        (said("user"), "message 3: the user's 'content' must be text", "only the fields role"),
        (said("assistant", content=None), "message 3: the assistant's 'content' must be text where no", "null"),
        ({"conversations": [{"from": "gpt", "value": None}]}, "message 1: the assistant's 'value' must be", "null"),
        (said("user", content=7), "message 3: 'content' must be text", "int 7"),
        (said("user", content=[{"type": "image"}]), "message 3: 'content' must be text", "a part image"),
        (said("user", content="x", tool_calls=[CALL]), "message 3: only the assistant calls tools", "user"),
        (said("assistant", content=""), "message 3: the assistant says nothing", "str ''"),
        (said("assistant", content="x", weight=0), "message 3: every message of the assistant", "weight 0"),
        (said("assistant", content="x", reasoning_content="y"), "'reasoning_content' would be lost", "str 'y'"),
        (said("tool", content="x", tool_call_id="c2"), "names the call that it answers", "tool_call_id 'c2'"),
        (said("assistant", tool_calls=7), "message 3: tool_calls must be a list", "int 7"),
        (said("assistant", tool_calls=[{"name": ""}]), "a tool call needs a name", "dict {'name': ''}"),
        (said("assistant", tool_calls=[{"name": "f", "arguments": "{"}]), "the arguments of f must be JSON", "'{'"),
        (said("assistant", tool_calls=[{"name": "f", "arguments": [1]}]), "arguments of f must be an object", "[1]"),
        ({**OPENAI, "tools": 7}, "'tools' must be a list", "int 7"),
        ({**OPENAI, "tools": "nonsense"}, "the field 'tools' must be JSON", "nonsense"),
        ({**OPENAI, "tools": [{}]}, "a tool needs a name", "dict {}"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "needs a call before it", "no message with tool_calls"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(row: Any, message: str, found: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", OPENAI, "", row)
    with pytest.raises(DataError) as caught:
        data(path).conversations("train")
    assert caught.value.where == f"{path}, line 3"
    assert message in caught.value.message
    assert found in str(caught.value.found)
    assert caught.value.mend
    skipping = data(path, on_error="skip")
    assert len(skipping.conversations("train")) == 1
    assert skipping.skipped("train") == 1


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a data file is missing"):
        data(str(tmp_path / "none.jsonl")).conversations("train")
    with pytest.raises(DataError, match=r"end in .jsonl or .json"):
        data(lines(tmp_path / "rows.txt", OPENAI)).conversations("train")
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        data(str(tmp_path / "rows.jsonl")).conversations("train")


def test_a_split_without_files_is_empty_and_the_limit_counts_conversations(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", "nonsense", OPENAI, SHARED, OPENAI)
    found = data(path, on_error="skip", limit=2)
    assert list(found.conversations("evaluation")) == []
    assert len(found.conversations("train")) == 2
    with pytest.raises(DataError, match="a split is train or evaluation"):
        found.conversations("test")


def test_demonstrations_come_in_shuffled_rounds(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": "x"}]} for i in range(5)
    ]
    found = data(lines(tmp_path / "rows.jsonl", *rows))
    drawn = [one.messages[0].text for one in found.demonstrations(10, seed=1)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == list("01234")
    assert drawn[:5] != drawn[5:]
    assert [one.messages[0].text for one in islice(found.demonstrations(10, seed=1), 10)] == drawn


def test_a_tokenizer_learns_from_the_texts_and_the_calls(tmp_path: Path) -> None:
    texts = list(data(lines(tmp_path / "rows.jsonl", OPENAI)).texts())
    assert "1 + 2?" in texts
    assert any('{"a": 1, "b": 2}' in text for text in texts)
    assert any("add(a, b)" in text for text in texts)
