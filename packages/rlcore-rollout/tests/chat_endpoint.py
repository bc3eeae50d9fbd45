"""A chat-completions endpoint with scripted replies, and an agent that asks it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlcore.contracts import ChatEngine
from rlcore.episodes.tool import tool
from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.models.weights import FolderWeights
from rlcore.session.session import RunSession
from rlcore.types import (
    ChatCompletion,
    Group,
    ImagePart,
    Message,
    Observation,
    RolloutRequest,
    Sampling,
    Step,
    Task,
    TextPart,
    Trajectory,
)
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.executors.local import LocalExecutor

HERE = __file__
USER = (Message(role="user", content="what is 2 + 2?"),)
KEY = "sk-a-key-that-nobody-may-see"
"""Not a real one."""


@tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: One.
        b: Another.
    """
    return str(a + b)


class Sums(ToolEnvironment):
    """Sums with a tool, three turns."""

    def __init__(self) -> None:
        super().__init__(tools=[add], max_turns=3)


class Pictures:
    """Shows the image of the task, then again as the answer of a tool."""

    def __init__(self) -> None:
        self.turns = 0

    async def reset(self, task: Task, *, seed: int) -> Observation:
        self.image = ImagePart.of(task.images[0])
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        self.turns += 1
        content = (self.image, TextPart(text="more"))
        answers = tuple(Message(role="tool", content=content, tool_call_id=call.id) for call in action.tool_calls)
        return Step(observation=Observation(messages=answers), terminated=self.turns == 2)

    async def close(self) -> None:
        """Nothing to free."""


class Tasks:
    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(id=f"t{n}", messages=USER) for n in range(6)]


def right(trajectory: Trajectory, task: Task) -> float:
    return float("4" in trajectory.final_response)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the endpoint answers once."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0


def reply(
    content: Any = "it is 4", *, calls: Any = None, reason: str | None = "stop", usage: Any = (7, 3), **more: Any
) -> Reply:
    """A well-formed answer."""
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls is not None else {}), **more}
    data: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    if usage is not None:
        data["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return Reply(body=json.dumps(data).encode())


def call(arguments: Any, name: Any = "add", id: Any = "call_x") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def failing(status: int, message: str = "no", **headers: str) -> Reply:
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=headers)


class Endpoint:
    """A server in a thread. ``answers`` are given one after the other, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[Reply] = [reply()]
        self.models = Reply(status=404, body=b"{}")
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.gone = threading.Event()
        lock, endpoint = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    endpoint.times.append(time.monotonic())
                    endpoint.bodies.append(body)
                    endpoint.keys.append(self.headers["Authorization"])
                    answer = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                self.give(answer)

            def do_GET(self) -> None:
                self.give(endpoint.models)

            def give(self, answer: Reply) -> None:
                if answer.after_s and endpoint.gone.wait(answer.after_s):
                    return
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                with suppress(OSError):  # who asked may not want to hear the rest
                    self.wfile.write(answer.body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        self.gone.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def ask(
    endpoint: Endpoint,
    messages: Sequence[Message] = USER,
    *,
    sampling: Sampling | None = None,
    context: EngineContext | None = None,
    **options: Any,
) -> ChatCompletion:
    """One request, through an engine of its own."""
    from rlcore_rollout.engines.openai.config import OpenAIEngineConfig
    from rlcore_rollout.engines.openai.engine import OpenAIEngine

    async def go() -> ChatCompletion:
        config = OpenAIEngineConfig(**{"model": "m", "base_url": endpoint.url, "max_retries": 0, **options})
        engine = OpenAIEngine(config, FolderWeights(folder=None), context or EngineContext())
        assert isinstance(engine, ChatEngine)
        try:
            return await engine.chat(messages, (), sampling or Sampling(max_new_tokens=9), session="s")
        finally:
            await engine.close()

    return asyncio.run(go())


def collect(
    endpoint: Endpoint,
    count: int = 1,
    rollout: Any = None,
    environment: str = "Sums",
    tasks: Sequence[Task] | None = None,
    **options: Any,
) -> Sequence[Group]:
    """Whole trajectories, of a configuration that names no model's folder."""
    values = {
        "environment": {"id": f"{HERE}:{environment}"},
        "data": {"id": f"{HERE}:Tasks"},
        "reward": [{"id": f"{HERE}:right"}],
        "rollout": {
            "engine": "openai",
            "openai": {"model": "m", "base_url": endpoint.url, "max_retries": 0, **options},
            **(rollout or {}),
        },
    }
    executor = LocalExecutor(RunSession.create(values, purpose="evaluation"), FolderWeights(folder=None))
    try:
        tasks = tasks or Tasks().tasks("evaluation")[:count]
        return executor.collect(RolloutRequest(tasks=tasks, group_size=1, seed=1, step=0, purpose="evaluation"))
    finally:
        executor.close()


def only(groups: Sequence[Group]) -> Trajectory:
    """The one trajectory that there is."""
    ((trajectory,),) = (group.trajectories for group in groups)
    return trajectory
