"""A turn of an agent through the server of the policy without the time of sampling, in each API, against 5 ms."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from comparison import Comparison
from rlcore.event_loop import EventLoop
from rlcore.types import ChatCompletion, Message, Response, ToolCall
from rlcore_harness.server import policy_server

VERSIONS = ("rlcore-harness", "uvicorn")

BUDGET_MS = 5.0
TURNS = 16
WORDS = "A result of a tool that has about as many words as the page of a small search engine. " * 10
CALL = ToolCall(name="search", arguments={"query": "the height of the tower"}, id="call_0")
ANSWER = Message(role="assistant", content="I look.", tool_calls=(CALL,))
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}
FUNCTION = {"name": CALL.name, "parameters": SCHEMA}
ARGUMENTS = json.dumps(CALL.arguments)
CHAT_CALL = {"id": CALL.id, "type": "function", "function": {"name": CALL.name, "arguments": ARGUMENTS}}
USER = {"role": "user", "content": "How high is the tower?"}
Body = dict[str, Any]


class AtOnce:
    """A policy that answers without sampling."""

    max_turns = None

    def __init__(self) -> None:
        self.turns = 0

    async def respond(self, messages: Sequence[Message], **_: object) -> Response:
        """Call the tool."""
        self.turns += 1
        return Response(
            self.turns - 1,
            ChatCompletion(message=ANSWER, finish_reason="stop", prompt_tokens=100, completion_tokens=20),
        )

    def withdraw(self, turn: int) -> None:
        """Forget a turn: none is in this benchmark."""
        raise AssertionError(turn)


def chat(turn: int) -> Body:
    """The request of a turn in the API of chat completions: all earlier calls, and their results."""
    call = {"role": "assistant", "content": ANSWER.text, "tool_calls": [CHAT_CALL]}
    earlier = [call, {"role": "tool", "tool_call_id": CALL.id, "content": WORDS}] * turn
    return {"messages": [USER, *earlier], "tools": [{"type": "function", "function": FUNCTION}]}


def streamed(turn: int) -> Body:
    """The same as a stream of events."""
    return {**chat(turn), "stream": True}


def responses(turn: int) -> Body:
    """The same in OpenAI's Responses."""
    call = {"type": "function_call", "call_id": CALL.id, "name": CALL.name, "arguments": ARGUMENTS}
    earlier = [call, {"type": "function_call_output", "call_id": CALL.id, "output": WORDS}] * turn
    return {"input": [USER, *earlier], "tools": [{"type": "function", **FUNCTION}]}


def messages(turn: int) -> Body:
    """The same in Anthropic's messages."""
    use = {"type": "tool_use", "id": CALL.id, "name": CALL.name, "input": CALL.arguments}
    result = {"type": "tool_result", "tool_use_id": CALL.id, "content": WORDS}
    earlier = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}] * turn
    tools = [{"name": CALL.name, "input_schema": SCHEMA}]
    return {"model": "policy", "max_tokens": 100, "messages": [USER, *earlier], "tools": tools}


def measured(route: str, body: Callable[[int], Body], episodes: int) -> Callable[[], float]:
    """Milliseconds of a turn in episodes one after the other. Making the bodies is not measured."""
    bodies = [json.dumps(body(turn)).encode() for turn in range(TURNS)]

    def episode(loop: EventLoop) -> float:
        policy = AtOnce()

        async def entered() -> Any:
            block = policy_server().session(policy, loop=asyncio.get_running_loop())  # type: ignore[arg-type]
            return block, block.__enter__()

        async def leave() -> None:
            block.__exit__(None, None, None)

        block, session = loop.run(entered())
        connection = http.client.HTTPConnection(session.root_url.removeprefix("http://"), timeout=20)
        start = time.perf_counter()
        for content in bodies:
            connection.request("POST", route, content, {"Authorization": f"Bearer {session.key}"})
            answer = connection.getresponse()
            read = answer.read()
            assert answer.status == 200, read
            assert CALL.name.encode() in read, read
        elapsed = time.perf_counter() - start
        connection.close()
        loop.run(leave())
        assert policy.turns == TURNS
        return elapsed

    def once() -> float:
        with EventLoop() as loop:
            return 1000 * sum(episode(loop) for _ in range(episodes)) / (episodes * TURNS)

    return once


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Conversations of sixteen turns with a tool, the last of which has 14 kB."""
    episodes = 1 if smoke else 20
    apis = {
        "chat-completions": ("/v1/chat/completions", chat),
        "stream": ("/v1/chat/completions", streamed),
        "responses": ("/v1/responses", responses),
        "messages": ("/v1/messages", messages),
    }
    return [
        Comparison(name=name, ours=measured(route, body, episodes), peer=BUDGET_MS, floor=1.0, unit="ms")
        for name, (route, body) in apis.items()
    ]
