"""The dataset ``chat``: all row formats, and errors with file and line."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rlcore.data.chat import ChatData, ChatDataConfig
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


def ending_with(role: str, **fields: Any) -> dict[str, Any]:
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
def test_all_row_formats_are_equivalent(row: Any, tmp_path: Path) -> None:
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


def test_pair_of_strings_is_a_question_and_its_answer(tmp_path: Path) -> None:
    found = data(lines(tmp_path / "rows.jsonl", {"prompt": "1 + 2?", "completion": "3", "answer": 3}))
    (one,) = found.conversations("train")
    assert [(message.role, message.text) for message in one.messages] == [("user", "1 + 2?"), ("assistant", "3")]
    (task,) = found.tasks("train")
    assert dict(task.fields) == {"answer": 3}


def test_prompt_and_completion_next_to_messages_are_plain_fields(tmp_path: Path) -> None:
    (task,) = data(lines(tmp_path / "rows.jsonl", {**OPENAI, "prompt": "x", "completion": "y"})).tasks("train")
    assert set(task.fields) == {"answer", "prompt", "completion"}


def test_tool_message_takes_the_name_of_its_call(tmp_path: Path) -> None:
    (one,) = data(lines(tmp_path / "rows.jsonl", OPENAI)).conversations("train")
    assert (one.messages[3].name, one.messages[3].tool_call_id) == ("add", "c1")


def test_json_list_is_read_and_errors_have_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([OPENAI, SHARED], indent=1), encoding="utf-8")
    assert len(data(str(path)).conversations("train")) == 2
    path.write_text('[\n\n{"messages": [{"role": "user",\n "content": "x"}]},\n  {"a": 1}]', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data(str(path)).conversations("train")
    assert caught.value.where == f"{path}, line 3"
    skipping = data(str(path), on_error="skip")
    with pytest.raises(DataError) as caught:
        skipping.conversations("train")
    assert (caught.value.found, caught.value.where) == ("2 invalid rows", str(path))


@pytest.mark.parametrize("text", ["[1,", '["x" "y"]', "[1] [2]", "[,]", '{"messages": []}', "[1, nonsense]", "["])
def test_damaged_json_list_is_rejected(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data(str(tmp_path / "rows.json"), on_error="skip").conversations("train")
    assert str(tmp_path / "rows.json") in str(caught.value.where)


def test_empty_json_list_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(" [ ]\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data(str(tmp_path / "rows.json")).conversations("train")
    assert caught.value.found == "no rows"


def test_invalid_row_message(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", OPENAI, "", ending_with("robot", content="x"))
    with pytest.raises(DataError) as caught:
        data(path).conversations("train")
    assert str(caught.value).splitlines() == [
        "message 3: 'role' must be one of system, developer, user, human, assistant, gpt, tool, function_response, "
        "observation",
        "  found  str 'robot'",
        f"  from   {path}, line 3",
        "  fix    correct the row, or skip invalid rows with data.on_error=skip",
    ]


@pytest.mark.parametrize(
    ("row", "field", "found"),
    [
        ("{", "", "line 1 column 2"),
        ([1], "", "list [1]"),
        ({"text": "x"}, "'messages'", "the fields text"),
        ({**OPENAI, **SHARED}, "'messages'", "messages, tools, answer, system, conversations"),
        ({"prompt": "x"}, "'completion'", "the fields prompt"),
        ({"prompt": "x", "completion": [{"role": "assistant", "content": "y"}]}, "'completion'", "str and list"),
        ({"prompt": OPENAI["messages"], "completion": []}, "'prompt'", "'prompt'"),
        ({"prompt": "x", "completion": ""}, "message 2: ", "str ''"),
        ({"messages": []}, "'messages'", "list []"),
        ({"messages": ["x"]}, "message 1: ", "str 'x'"),
        ({"messages": [{"role": "user", "content": "x"}]}, "assistant", "user"),
        ({"conversations": [{"from": "me", "value": "x"}]}, "message 1: 'from'", "str 'me'"),
        (ending_with("user"), "message 3: the user's 'content'", "only the fields role"),
        (ending_with("assistant", content=None), "message 3: the assistant's 'content'", "null"),
        ({"conversations": [{"from": "gpt", "value": None}]}, "message 1: the assistant's 'value'", "null"),
        (ending_with("user", content=7), "message 3: 'content'", "int 7"),
        (ending_with("user", content=[{"type": "video"}]), "message 3: 'content'", "video"),
        (ending_with("user", content="x", tool_calls=[CALL]), "message 3: ", "tool_calls of a user message"),
        (ending_with("assistant", content=""), "message 3: ", "str ''"),
        (ending_with("assistant", content="x", weight=0), "message 3: ", "weight 0"),
        (ending_with("assistant", content="x", reasoning_content="y"), "'reasoning_content'", "str 'y'"),
        (ending_with("tool", content="x", tool_call_id="c2"), "tool_call_id", "tool_call_id 'c2'"),
        (ending_with("assistant", tool_calls=7), "message 3: tool_calls", "int 7"),
        (ending_with("assistant", tool_calls=[{"name": ""}]), "name", "dict {'name': ''}"),
        (ending_with("assistant", tool_calls=[{"name": "f", "arguments": "{"}]), "arguments of f", "'{'"),
        (ending_with("assistant", tool_calls=[{"name": "f", "arguments": [1]}]), "arguments of f", "[1]"),
        ({**OPENAI, "tools": 7}, "'tools'", "int 7"),
        ({**OPENAI, "tools": "nonsense"}, "'tools'", "nonsense"),
        ({**OPENAI, "tools": [{}]}, "tool", "dict {}"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "message 1: ", "tool_calls"),
    ],
)
def test_invalid_row_is_reported_with_file_and_line(row: Any, field: str, found: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", OPENAI, "", row)
    with pytest.raises(DataError) as caught:
        data(path).conversations("train")
    assert caught.value.where == f"{path}, line 3"
    assert field in caught.value.message
    assert found in str(caught.value.found)
    assert caught.value.fix
    skipping = data(path, on_error="skip")
    assert len(skipping.conversations("train")) == 1
    assert skipping.skipped("train") == 1


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    lines(tmp_path / "rows.txt", OPENAI)
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe")
    for name, found in (("none.jsonl", "no such file"), ("rows.txt", "rows.txt"), ("rows.jsonl", "utf-8")):
        with pytest.raises(DataError) as caught:
            data(str(tmp_path / name)).conversations("train")
        assert caught.value.where == str(tmp_path / name)
        assert found in str(caught.value.found)


def test_split_without_files_is_empty_and_limit_is_applied(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", "nonsense", OPENAI, SHARED, OPENAI)
    found = data(path, on_error="skip", limit=2)
    assert list(found.conversations("evaluation")) == []
    assert len(found.conversations("train")) == 2
    with pytest.raises(DataError) as caught:
        found.conversations("test")
    assert caught.value.found == "test"


def test_demonstrations_are_shuffled_in_each_pass(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": "x"}]} for i in range(5)
    ]
    found = data(lines(tmp_path / "rows.jsonl", *rows))
    drawn = [one.messages[0].text for one in found.demonstrations(10, seed=1)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == list("01234")
    assert drawn[:5] != drawn[5:]
    assert [one.messages[0].text for one in islice(found.demonstrations(10, seed=1), 10)] == drawn


def test_texts_include_messages_tools_and_calls(tmp_path: Path) -> None:
    texts = list(data(lines(tmp_path / "rows.jsonl", OPENAI)).texts())
    assert "1 + 2?" in texts
    assert any('{"a": 1, "b": 2}' in text for text in texts)
    assert any("add(a, b)" in text for text in texts)


def test_fields_of_prompt_and_completion_or_messages_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    row = {"prompt": "other", "extra_info": {"question": "2+2?", "answer": "4"}, "chat": turns}
    file.write_text(json.dumps(row) + "\n")

    def texts(**named: str) -> list[str]:
        (one,) = ChatData(ChatDataConfig(train=[str(file)], **named)).conversations("train")
        return [message.text for message in one.messages]

    assert texts(prompt="extra_info.question", completion="extra_info.answer") == ["2+2?", "4"]
    assert texts(messages="chat") == ["1+1?", "2"]
    with pytest.raises(DataError, match="the row has no field"):
        texts(prompt="extra_info.question", completion="extra_info.text")
    for wrong in ({"prompt": "a"}, {"messages": "a", "prompt": "b", "completion": "c"}):
        with pytest.raises(ValueError, match="prompt and completion, or messages"):
            texts(**wrong)
