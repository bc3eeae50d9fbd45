"""An agent that asks the endpoint of `chat_server`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from chat_server import KEY, Endpoint, Reply, call, failing, free_port, reply
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
from rlcore_rollout.sampler.local import LocalSampler

HERE = __file__
USER = (Message(role="user", content="what is 2 + 2?"),)
__all__ = ["HERE", "KEY", "Endpoint", "Reply", "ask", "call", "collect", "failing", "free_port", "only", "reply"]


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
    run = RunSession.create(values, purpose="evaluation")
    sampler = LocalSampler(run, FolderWeights(folder=None), run)
    try:
        tasks = tasks or Tasks().tasks("evaluation")[:count]
        return sampler.collect(RolloutRequest(tasks=tasks, group_size=1, seed=1, step=0, purpose="evaluation"))
    finally:
        sampler.close()


def only(groups: Sequence[Group]) -> Trajectory:
    """The one trajectory that there is."""
    ((trajectory,),) = (group.trajectories for group in groups)
    return trajectory
