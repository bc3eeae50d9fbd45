"""The server that publishes environments, with clients that keep to the protocol and with others."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from rl_plugin_openenv.demo import DOORS
from rl_plugin_openenv.publishing import Published
from rl_plugin_openenv.server import OpenEnvServer
from rlcore import event_loop
from rlcore.types import Message, Observation, Step, Task, ToolSchema, Trajectory
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

TOKEN = "a token of the test"
ADD = ToolSchema(name="add", description="Add.", parameters={"type": "object", "properties": {}, "required": []})


class Moody:
    """Does what an answer says."""

    closed: ClassVar[list[str]] = []

    async def reset(self, task: Task, *, seed: int) -> Observation:
        self.task = task
        if task.id == "broken":
            raise RuntimeError("no reset")
        return Observation(messages=(Message(role="user", content=f"{task.id} {seed}"),), tools=(ADD,))

    async def step(self, action: Message) -> Step:
        if action.tool_calls:
            answer = Message(role="tool", content=f"called {dict(action.tool_calls[0].arguments or {})}")
            return Step(observation=Observation(messages=(answer,)), reward=0.25)
        if action.text == "raise":
            raise RuntimeError("it broke")
        if action.text == "wrong":
            return "not a step"  # type: ignore[return-value]
        if action.text == "wait":
            await asyncio.sleep(60)
        return Step(terminated=action.text == "end", truncated=action.text == "cut", reward=0.5)

    async def close(self) -> None:
        self.closed.append(self.task.id)


async def score(trajectory: Trajectory, task: Task) -> float | None:
    answers = [message for message in trajectory.messages if message.role == "assistant"]
    return None if task.id == "unscored" else trajectory.metrics["step_reward"] + 10 * len(answers)


MOODY = Published(
    name="moody",
    description="Moods.",
    tasks=tuple(Task(id=id, messages=()) for id in ("first", "second", "broken", "unscored")),
    make=Moody,
    score=score,
    timeout_s=1.0,
)


@asynccontextmanager
async def serving(published: Published, *, most: int = 8, token: str | None = None) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = OpenEnvServer(published, most=most, token=token, say=print)
        async with await server.listen(listening):
            yield f"ws://127.0.0.1:{listening.getsockname()[1]}/ws"


async def ask(client: ClientConnection, kind: str, **data: Any) -> Mapping[str, Any]:
    await client.send(json.dumps({"type": kind, "data": data}))
    answer = json.loads(await client.recv())
    return {"type": answer["type"], **answer["data"]}


async def page(url: str, path: str, **headers: str) -> tuple[int, Any]:
    host, port = url[5:].partition("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body) if body.startswith("{") else body


def test_episodes_have_tasks_by_seed_and_the_reward_at_their_end() -> None:
    async def play() -> None:
        async with serving(MOODY) as url, connect(url) as client:
            first = await ask(client, "reset", seed=5, episode_id="mine", level=3)
            assert (first["observation"], first["reward"], first["done"]) == ({"text": "second 5"}, None, False)
            assert (await ask(client, "state"))["episode_id"] == "mine"
            listed = await ask(client, "step", type="list_tools")
            assert listed["observation"]["tools"] == [
                {"name": "add", "description": "Add.", "input_schema": dict(ADD.parameters) | {"required": []}}
            ]
            called = await ask(client, "step", type="call_tool", tool_name="add", arguments={"a": 1})
            assert called["observation"] == {"tool_name": "add", "result": "called {'a': 1}", "error": None}
            assert (called["reward"], called["done"]) == (None, False)
            last = await ask(client, "step", message="cut")
            assert (last["reward"], last["done"], last["observation"]["metadata"]) == (
                20.75,
                True,
                {"stop": "max_turns"},
            )
            assert (await ask(client, "step", message="more"))["code"] == "EXECUTION_ERROR"
            await ask(client, "reset", task_id="unscored")
            last = await ask(client, "step", message="end")
            assert (last["reward"], last["done"]) == (None, True)

    Moody.closed.clear()
    event_loop.run(play())
    assert Moody.closed == ["second", "unscored"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ("[" + "0," * 600_000 + "0]", "INVALID_JSON"),
        ("7", "UNKNOWN_TYPE"),
        ('{"type": {}}', "UNKNOWN_TYPE"),
        ('{"type": "step", "data": [1]}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"message": 5}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"message": "a", "other": 1}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"type": "call_tool", "tool_name": "add", "arguments": []}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": "1"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"task_id": "unknown"}}', "EXECUTION_ERROR"),
        ('{"type": "reset", "data": {"task_id": "broken"}}', "EXECUTION_ERROR"),
        ('{"type": "step", "data": {"message": "raise"}}', "EXECUTION_ERROR"),
        ('{"type": "step", "data": {"message": "wrong"}}', "EXECUTION_ERROR"),
        ('{"type": "step", "data": {"message": "wait"}}', "EXECUTION_ERROR"),
    ],
)
def test_session_continues_after_an_error(sent: str, code: str) -> None:
    async def play() -> None:
        async with serving(MOODY) as url, connect(url) as client:
            await ask(client, "reset", seed=0)
            await client.send(sent)
            answer = json.loads(await client.recv())
            assert (answer["type"], answer["data"]["code"]) == ("error", code)
            await ask(client, "reset", seed=0)
            assert (await ask(client, "step", message="end"))["reward"] == 10.5

    event_loop.run(play())


def test_sessions_are_limited_and_end_with_their_clients() -> None:
    async def play() -> None:
        async with serving(MOODY, most=2) as url:
            async with connect(url) as one, connect(url) as two:
                await asyncio.gather(ask(one, "reset", seed=0), ask(two, "reset", seed=1))
                async with connect(url) as third:
                    assert json.loads(await third.recv())["data"]["code"] == "CAPACITY_REACHED"
                one.transport.abort()
                await two.send('{"type": "close"}')
                with pytest.raises(ConnectionClosed):
                    await two.recv()
            for _ in range(500):
                if len(Moody.closed) == 2:
                    break
                await asyncio.sleep(0.01)
            async with connect(url) as client:
                await ask(client, "reset", seed=0)

    Moody.closed.clear()
    event_loop.run(play())
    assert sorted(Moody.closed) == ["first", "first", "second"]


def test_long_messages_end_their_session_alone() -> None:
    async def play() -> None:
        async with serving(MOODY) as url, connect(url) as other:
            client = await connect(url)
            with pytest.raises(ConnectionClosed):
                await ask(client, "step", message="x" * (17 * 2**20))
            assert (await ask(other, "reset", seed=0))["done"] is False

    event_loop.run(play())


def test_pages_describe_the_environment_and_a_token_protects_all_of_them() -> None:
    async def look() -> None:
        async with serving(DOORS, token=TOKEN) as url:
            key = {"Authorization": f"Bearer {TOKEN}"}
            assert await page(url, "/health", **key) == (200, {"status": "healthy"})
            assert (await page(url, "/metadata", **key))[1]["name"] == "doors"
            schema = (await page(url, "/schema?x=1", **key))[1]
            assert list(schema["action"]["properties"]) == ["message", "metadata"]
            assert (await page(url, "/web", **key))[0] == 404
            for path in ("/health", "/schema", "/ws"):
                assert (await page(url, path))[0] == 401
                assert (await page(url, path, Authorization="Bearer other \xff"))[0] in (400, 401)
            for headers, status in (({}, 401), ({**key, "Origin": "http://evil.example"}, 403)):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(url, additional_headers=headers)
                assert refused.value.response.status_code == status

    event_loop.run(look())
