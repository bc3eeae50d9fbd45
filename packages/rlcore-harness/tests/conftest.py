"""A policy that answers at once, behind the server of the process."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from rlcore.errors import EngineError, EpisodeEnded
from rlcore.event_loop import EventLoop
from rlcore.types import ChatCompletion, Message, Observation, Response, Stop, ToolCall, ToolSchema
from rlcore.types.checking import flaw_in_observation
from rlcore_harness.server import policy_server
from rlcore_harness.session import Session

Answer = tuple[int, dict[str, str], bytes]


class Policy:
    """Calls the first tool when a user asks, and repeats the last message otherwise."""

    max_turns: int | None = None

    def __init__(self) -> None:
        self.requests: list[tuple[Sequence[Message], Sequence[ToolSchema], Sequence[bytes], Mapping[str, Any]]] = []
        self.withdrawn: list[int] = []
        self.cancelled = 0
        self.rewards: dict[int | None, float] = {}

    @property
    def turns(self) -> int:
        return len(self.requests) - len(self.withdrawn)

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Any = (),
        sampling: Mapping[str, Any] = {},
    ) -> Response:
        assert flaw_in_observation(Observation(messages=messages, tools=tools, images=images)) is None
        repr((messages, tools)).encode()
        if not messages:
            raise ValueError("no messages")
        self.requests.append((messages, tools, images, sampling))
        turn, last = len(self.requests) - 1, messages[-1]
        match last.text:
            case "forever" | "half" if last.text == "forever" or turn % 2:
                try:
                    await asyncio.sleep(600)
                finally:
                    self.cancelled += 1
            case "wait":
                await asyncio.sleep(0.3)
            case "crash later":
                await asyncio.sleep(0.3)
                raise EngineError("it is gone")
            case "full":
                raise EpisodeEnded("no room", Stop.LENGTH)
            case "used up":
                raise EpisodeEnded("three turns", Stop.MAX_TURNS)
            case "crash":
                raise EngineError("it is gone")
        message = Message(role="assistant", content=f"{last.role} {last.name}: {last.text}")
        if tools and last.role == "user":
            call = ToolCall(name=tools[0].name, arguments={"city": "Zürich"}, id=f"call_{turn}")
            message = Message(role="assistant", content="I look.", tool_calls=(call,))
        if last.text == "huge":
            message = Message(role="assistant", content="x" * 30_000_000)
        reason = "length" if last.text == "long" else "stop"
        return Response(
            turn, ChatCompletion(message=message, finish_reason=reason, prompt_tokens=7, completion_tokens=3)
        )

    def withdraw(self, turn: int) -> None:
        self.withdrawn.append(turn)

    def reward(self, value: float, *, turn: int | None = None) -> None:
        self.rewards[turn] = value


class Served:
    """A policy with its session, and an honest client."""

    def __init__(self, policy: Policy, session: Session, loop: EventLoop) -> None:
        self.policy, self.session, self.loop = policy, session, loop
        self.host = session.root_url.removeprefix("http://")
        self.connection = http.client.HTTPConnection(self.host, timeout=20)

    def send(self, route: str, body: Any, *, method: str = "POST", **headers: str) -> Answer:
        """Send a request, and return status, headers and body of the answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, route, content, {"Authorization": f"Bearer {self.session.key}", **named})
        answer = self.connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def ask(self, route: str, body: Any, **headers: str) -> Any:
        """The JSON of an answer."""
        status, _, content = self.send(route, body, **headers)
        assert status == 200, content
        return json.loads(content)

    def events(self, route: str, body: Any) -> list[Any]:
        """The data of the events of a stream."""
        status, headers, content = self.send(route, {**body, "stream": True})
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8"), content
        data = [line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in data if line != "[DONE]"]


@contextmanager
def opened(key: str | None = None) -> Iterator[Served]:
    with EventLoop() as loop:
        policy = Policy()

        async def enter() -> tuple[AbstractContextManager[Session], Session]:
            block = policy_server().session(policy, loop=asyncio.get_running_loop(), key=key)
            return block, block.__enter__()

        async def leave() -> None:
            block.__exit__(None, None, None)

        block, session = loop.run(enter())
        served = Served(policy, session, loop)
        try:
            yield served
        finally:
            served.connection.close()
            loop.run(leave())


@pytest.fixture
def served() -> Iterator[Served]:
    with opened() as one:
        yield one


@pytest.fixture
def open_session() -> Callable[..., AbstractContextManager[Served]]:
    return opened
