"""The server: each API's forms, and what becomes of the turns of requests that are repeated, aborted or late."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from rlcore.types import ImagePart, Message, TextPart, ToolCall
from rlcore_harness import server

PNG = b"\x89PNG not decoded here"
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TOOLS: dict[str, Any] = {
    CHAT: {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    RESPONSES: {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True},
    MESSAGES: {"name": "weather", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
}
CONVERSATION = (
    Message(role="system", content="Be brief."),
    Message(role="user", content=(TextPart(text="Weather?"), ImagePart.of(PNG))),
    Message(
        role="assistant",
        content="I look.",
        tool_calls=(ToolCall(name="weather", arguments={"city": "Zürich"}, id="call_0"),),
    ),
    Message(role="tool", name="weather", content="sunny", tool_call_id="call_0"),
)


def user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 5}


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_chat(served: Any) -> None:
    asked = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": {"url": URL}}],
        },
    ]
    body = {
        "model": "any",
        "messages": asked,
        "tools": [TOOLS[CHAT]],
        "tool_choice": "required",
        "user": "me",
        "seed": 3,
    }
    answer = served.ask(CHAT, body)
    choice = answer["choices"][0]
    assert (choice["finish_reason"], answer["model"], answer["usage"]["total_tokens"]) == ("tool_calls", "any", 10)
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Zürich"}

    result = {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": "sunny"}]}
    body |= {"messages": [*asked, choice["message"], result], "stop": "x", "top_k": -1, "max_completion_tokens": 9}
    assert served.ask(CHAT, body)["choices"][0]["message"]["content"] == "tool weather: sunny"
    messages, tools, images, sampling = served.policy.requests[-1]
    assert (messages, tools[0].name, tuple(images)) == (CONVERSATION, "weather", (PNG,))
    assert sampling == {"stop": ("x",), "top_k": 0, "max_new_tokens": 9}

    chunks = served.events(CHAT, {**body, "messages": asked, "stream_options": {"include_usage": True}})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": "I look."}
    assert deltas[2] == {}
    assert deltas[1]["tool_calls"][0]["index"] == 0
    assert chunks[-1]["usage"]["completion_tokens"] == 3

    several = served.ask(CHAT, {**user("long"), "n": 3})
    assert [one["finish_reason"] for one in several["choices"]] == ["length"] * 3
    served.ask("/v1/reward", {"value": 0.5, "turn": several["id"], "choice": 1})
    served.ask("/reward", {"value": -1})
    assert served.policy.rewards == {4: 0.5, None: -1.0}


def test_responses(served: Any) -> None:
    asked = {
        "role": "user",
        "content": [{"type": "input_text", "text": "Weather?"}, {"type": "input_image", "image_url": URL}],
    }
    body = {"input": [asked], "instructions": "Be brief.", "tools": [TOOLS[RESPONSES]], "reasoning": {"effort": "low"}}
    answer = served.ask(RESPONSES, body)
    assert [item["type"] for item in answer["output"]] == ["message", "function_call"]
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    result = {"type": "function_call_output", "call_id": answer["output"][1]["call_id"], "output": "sunny"}
    whole = served.ask(RESPONSES, {**body, "input": [asked, thought, *answer["output"], result]})
    assert whole["output"][0]["content"][0]["text"] == "tool weather: sunny"
    assert whole["status"] == "completed"
    served.ask(RESPONSES, {**body, "input": [result], "previous_response_id": answer["id"]})
    assert served.policy.requests[-2][0] == served.policy.requests[-1][0] == CONVERSATION

    unknown, stops = {"previous_response_id": "resp_no"}, {"input": "hi", "stop": ["x"]}
    for wrong, reason in ((unknown, "no response resp_no"), (stops, "no stop texts")):
        status, _, content = served.send(RESPONSES, wrong)
        assert (status, reason in json.loads(content)["error"]["message"]) == (400, True)

    events = served.events(RESPONSES, {**body, "input": "long", "tools": []})
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "incomplete"),
    ]
    assert [event["sequence_number"] for event in events] == list(range(9))
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in events[-1]["response"]["output"]] == ["incomplete"]


def test_messages_of_anthropic(served: Any) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": URL.partition(",")[2]}}
    asked = {"role": "user", "content": [{"type": "text", "text": "Weather?"}, image]}
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    body = {"system": system, "messages": [asked], "tools": [TOOLS[MESSAGES]], "max_tokens": 9, "stop_sequences": ["x"]}
    answer = served.ask(MESSAGES, body, Authorization="", X_Api_Key=served.session.key)
    assert answer["stop_reason"] == "tool_use"
    assert answer["content"][1]["input"] == {"city": "Zürich"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": answer["content"][1]["id"], "content": "sunny"}
    said = {"role": "assistant", "content": [thought, *answer["content"]]}
    body["messages"] += [said, {"role": "user", "content": [result]}]
    assert served.ask(MESSAGES, body)["content"][0]["text"] == "tool weather: sunny"
    assert served.policy.requests[-1][0] == CONVERSATION
    assert served.policy.requests[-1][3] == {"max_new_tokens": 9, "stop": ("x",)}

    events = served.events(MESSAGES, {**body, "messages": [asked]})
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event["type"] for event in events] == ["message_start", *block, *block, "message_delta", "message_stop"]
    assert json.loads(events[5]["delta"]["partial_json"]) == {"city": "Zürich"}


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [("full", 400, "context_length_exceeded"), ("used up", 400, "max_turns"), ("crash", 500, "engine_error")],
)
def test_errors_of_the_policy_have_the_form_of_each_api(served: Any, text: str, status: int, code: str) -> None:
    for body in (user(text), user(text) | {"stream": True}):
        found, headers, content = served.send(CHAT, body)
        assert (found, headers["x-should-retry"], json.loads(content)["error"]["code"]) == (status, "false", code)
        found, headers, content = served.send(MESSAGES, body)
        assert found == status
        assert json.loads(content)["type"] == "error"


@pytest.mark.parametrize(
    "extra",
    [
        {"logprobs": True},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"tool_choice": "none", "tools": [TOOLS[CHAT]]},
        {"logit_bias": {"5": 1}},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}]}
            ]
        },
    ],
)
def test_what_cannot_be_followed_is_refused(served: Any, extra: dict[str, Any]) -> None:
    status, _, content = served.send(CHAT, {**user("hi"), **extra})
    assert status == 400
    assert re.search("is not supported|opens no URLs", content.decode())
    assert not served.policy.requests


def test_unreadable_arguments_come_back_as_they_were(served: Any) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": '}}
    served.ask(CHAT, {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call]}]})
    sent = served.policy.requests[0][0][1].tool_calls[0]
    assert (sent.arguments, sent.error) == (None, '{"city": ')


def test_a_stream_is_kept_alive_and_reports_a_late_error(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ALIVE_S", 0.05)
    status, _, content = served.send(CHAT, user("wait") | {"stream": True})
    assert (status, content[:12], content[-14:]) == (200, b": sampling\n\n", b"data: [DONE]\n\n")
    for route in (CHAT, MESSAGES):
        status, _, content = served.send(route, user("crash later") | {"stream": True})
        name, data = content.decode().splitlines()[-3:-1]
        assert (status, name) == (200, "event: error")
        assert json.loads(data.removeprefix("data: "))["error"]["message"] == "the engine failed: it is gone"


def test_a_retry_is_not_sampled_again(served: Any, open_session: Callable[..., AbstractContextManager[Any]]) -> None:
    first = served.ask(CHAT, user("hi"))
    again = served.ask(CHAT, user("hi"), X_Stainless_Retry_Count="1")
    assert again == first
    assert len(served.policy.requests) == 1
    other = served.ask(CHAT, user("hi"))
    assert other["id"] != first["id"]
    assert len(served.policy.requests) == 2
    with open_session() as another:
        assert another.ask(CHAT, user("hi"), X_Stainless_Retry_Count="1")["id"] not in (first["id"], other["id"])

    found: list[Any] = []
    second = type(served)(served.policy, served.session, served.loop)
    thread = threading.Thread(target=lambda: found.append(second.ask(CHAT, user("wait"))))
    thread.start()
    eventually(lambda: len(served.policy.requests) == 3)
    assert not served.session.idle()
    joined = served.ask(CHAT, user("wait"), X_Stainless_Retry_Count="1")
    thread.join()
    second.connection.close()
    assert [joined] == found
    assert len(served.policy.requests) == 3
    assert not served.policy.withdrawn


@pytest.mark.parametrize(
    ("text", "count", "cancelled", "withdrawn"),
    [("forever", 1, 1, []), ("half", 2, 1, [0]), ("huge", 1, 0, [0])],
    ids=["while it is sampled", "after one of two answers", "while the answer is sent"],
)
def test_a_client_that_leaves_gives_its_turn_back(
    served: Any, text: str, count: int, cancelled: int, withdrawn: list[int]
) -> None:
    content = json.dumps({**user(text), "n": count}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.session.key}\r\n"
    with socket.create_connection(served.host.split(":")) as client:
        client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        eventually(lambda: len(served.policy.requests) == count)
        if text == "huge":
            assert client.recv(10)
    eventually(served.session.idle)
    eventually(lambda: (served.policy.cancelled, served.policy.withdrawn) == (cancelled, withdrawn))


def test_the_end_of_a_session(open_session: Callable[..., AbstractContextManager[Any]]) -> None:
    found: list[int] = []
    with open_session("a key of a process") as served:
        client = type(served)(served.policy, served.session, served.loop)
        thread = threading.Thread(target=lambda: found.append(client.send(CHAT, user("forever"))[0]))
        thread.start()
        eventually(lambda: bool(served.policy.requests))
        with pytest.raises(ValueError, match="open"), open_session("a key of a process"):
            pass
    thread.join()
    assert found == [409]
    assert served.policy.cancelled == 1
    status, headers, content = client.send(MESSAGES, user("late"))
    assert (status, headers["x-should-retry"], json.loads(content)["type"]) == (409, "false", "error")
    with open_session("a key of a process") as served:
        assert client.send(CHAT, user("in time"))[0] == 200
        assert len(served.policy.requests) == 1
    client.connection.close()
