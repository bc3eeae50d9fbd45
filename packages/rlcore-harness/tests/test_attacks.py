"""Hostile requests: each is answered or refused in the form of its API, and other sessions do not notice."""

from __future__ import annotations

import copy
import json
import logging
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from rlcore_harness import server

CHAT, RESPONSES, MESSAGES, REWARD = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/reward"
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
IMAGE = "data:image/png;base64,iVBORw0KGgo="
HONEST: dict[str, dict[str, Any]] = {
    CHAT: {
        "messages": [
            {"role": "system", "content": "a"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"x": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "d"},
        ],
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "t", "description": "e", "parameters": SCHEMA}}],
        **{"tool_choice": "auto", "temperature": 1.0, "top_p": 0.5, "top_k": 5, "stop": ["f"], "n": 1},
        **{"max_tokens": 5, "stream": False, "stream_options": {"include_usage": True}, "response_format": None},
    },
    RESPONSES: {
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": IMAGE}],
            },
            {"type": "function_call", "call_id": "b", "name": "t", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "c"},
            {"type": "reasoning", "summary": []},
        ],
        "tools": [{"type": "function", "name": "t", "description": "d", "parameters": SCHEMA}],
        **{"model": "m", "instructions": "e", "previous_response_id": None, "text": {"format": {"type": "text"}}},
        **{"max_output_tokens": 5, "stream": True, "tool_choice": {"type": "function", "name": "t"}},
    },
    MESSAGES: {
        "system": [{"type": "text", "text": "a"}],
        "messages": [
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {"x": 1}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "d"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
                ],
            },
        ],
        "tools": [{"name": "t", "description": "e", "input_schema": SCHEMA}],
        **{"model": "m", "max_tokens": 5, "stop_sequences": ["f"], "stream": True, "output_config": {"format": None}},
    },
    REWARD: {"value": 0.5, "turn": None, "choice": 0},
}
WRONG: list[Any] = [
    *(None, True, 0, -1, 2.5, 10**400, float("nan"), float("inf"), "", "x", "\ud800", "\0\u202e\U0010ffff", "9" * 300),
    *([], [[]], [None], ["x"], {}, {"type": "x"}, {"type": []}, {"x": {"y": [{}]}}),
]
BEGIN = b'{"messages": [{"role": "user", "content": "'
MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "a number": b"1",
    "truncated": BEGIN,
    "not UTF-8": BEGIN + b'\xff\xfe"}]}',
    "a surrogate in UTF-8": BEGIN + b'\xed\xa0\x80"}]}',
    "lists of 100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "objects of 200 levels": b'{"a": ' * 200 + b"1" + b"}" * 200,
    "an integer of a million digits": b'{"n": ' + b"9" * 1_000_000 + b"}",
    "a million values": b'{"messages": [' + b"0," * 1_000_000 + b"0]}",
    "10,001 messages": json.dumps({"messages": [{"role": "user", "content": ""}] * 10_001}).encode(),
    "1,025 tools": json.dumps({"messages": [], "input": [], "tools": [{}] * 1_025}).encode(),
}
ANSWERS = {200, 400, 401, 403, 404, 405, 408, 409, 413, 429}


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from paths(item, (*path, key))


def damaged(body: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    changed = copy.deepcopy(body)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    return changed


def check(route: str, answer: tuple[int, dict[str, str], bytes]) -> int:
    """The status of an answer in the form of the route's API."""
    status, headers, content = answer
    assert status in ANSWERS, content
    assert b"Traceback" not in content
    if status == 200 and headers["content-type"].startswith("text/event-stream"):
        return status
    body = json.loads(content)
    if status != 200:
        assert isinstance(body["error"]["message"], str)
        assert ("type" in body) is route.startswith(MESSAGES)
        assert headers["x-should-retry"] == ("true" if status == 429 else "false")
    return status


Open = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(autouse=True)
def honest(open_session: Open, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """A session of another agent, which must still be served afterwards."""
    with open_session() as other, caplog.at_level(logging.WARNING):
        yield other
        assert other.ask(CHAT, {"messages": [{"role": "user", "content": "hi"}]})["choices"]
        assert (len(other.policy.requests), other.policy.rewards) == (1, {})
        assert not caplog.records


@pytest.mark.parametrize("route", HONEST)
def test_wrong_values_in_every_field(served: Any, route: str) -> None:
    served.ask(CHAT, {"messages": [{"role": "user", "content": "hi"}]})
    assert check(route, served.send(route, HONEST[route])) == 200
    choose = random.Random(route)
    places = list(paths(HONEST[route]))
    for place in places + choose.choices(places, k=max(0, 50 - len(places))):
        body = damaged(HONEST[route], place, choose.choice(WRONG))
        check(route, served.send(route, body))
    assert all(abs(value) <= 1e308 for value in served.policy.rewards.values())


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bodies(served: Any, content: bytes) -> None:
    for route in HONEST:
        assert check(route, served.send(route, content)) == 400
    assert not served.policy.requests


def test_keys_routes_methods_and_hosts(served: Any, honest: Any) -> None:
    hi = {"messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    for key in (
        "",
        "Bearer",
        "Bearer x",
        f"Basic {served.session.key}",
        f"Bearer {served.session.key}x",
        "Bearer \xff",
    ):
        for route in HONEST:
            assert check(route, served.send(route, hi, Authorization=key)) == 401
    for route in (
        "/",
        "/v1",
        "/v1/",
        "//chat/completions",
        "/v1/v1/messages",
        "/v1/chat/completions/",
        "/v1/%2e%2e/reward",
    ):
        assert check(route, served.send(route, hi)) == 404
    assert check("/v1/messages/count_tokens", served.send("/v1/messages/count_tokens", hi)) == 404
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert check(MESSAGES, served.send(MESSAGES, hi, method=method)) == 405
    for host in ("example.org", f"example.org:{served.host.partition(':')[2]}", "127.0.0.1", ""):
        assert check(CHAT, served.send(CHAT, hi, Host=host)) == 403
    assert not served.policy.requests

    theirs = served.ask(RESPONSES, hi)["id"]
    with pytest.raises(AssertionError, match="previous_response_not_found"):
        honest.ask(RESPONSES, {"input": "hi", "previous_response_id": theirs})
    assert check(REWARD, honest.send(REWARD, {"value": 1, "turn": theirs})) == 404
    for value in (float("nan"), float("-inf"), 10**400, True, "1", None):
        assert check(REWARD, served.send(REWARD, {"value": value})) == 400


def test_large_slow_and_aborted_requests(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.session.key}\r\n"

    def send(*parts: bytes, read: bool = True) -> bytes:
        with socket.create_connection(served.host.split(":"), timeout=20) as client:
            for part in parts:
                client.sendall(part)
                time.sleep(0.01)
            return client.recv(12) if read else b""

    assert send(head.encode() + b"Content-Length: 40000000\r\n\r\n") == b"HTTP/1.1 413"
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    assert send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 33) == b"HTTP/1.1 413"
    assert send(b"\0\xff" * 100) == b"HTTP/1.1 400"
    assert send(head.encode() + b"A: " + b"a" * 100_000 + b"\r\n\r\n") == b"HTTP/1.1 400"
    monkeypatch.setattr(server, "BODY_S", 0.2)
    assert send(head.encode() + b"Content-Length: 100\r\n\r\n", b"{") == b"HTTP/1.1 408"
    body = json.dumps({"messages": [{"role": "user", "content": "wait"}], "stream": True}).encode()
    for end in (0, 1, len(body) - 1, len(body)):
        send(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:end], read=False)
    deadline = time.monotonic() + 10
    while not served.session.idle():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_connections_without_a_request_give_way(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 200)
    with ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection(served.host.split(":"), timeout=20)) for _ in range(400)]
        assert served.ask(CHAT, {"messages": [{"role": "user", "content": "hi"}]})["choices"]
        assert sum(not _is_closed(client) for client in idle) <= 200


def _is_closed(client: socket.socket) -> bool:
    try:
        client.setblocking(False)
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False
