"""Trajectories of a scripted engine and small environments, for the tests of the agent loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlcore.episodes.context import EpisodeContext
from rlcore.models.weights import FolderWeights
from rlcore.types import Completion, Message, Observation, Prompt, Sampling, Step, Task, Trajectory
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.engines.scripted import ScriptedEngine, ScriptedEngineConfig
from rlcore_rollout.images import ImagePool
from rlcore_rollout.loop import AgentLoop, Limits
from rlcore_rollout.model_client import TokenClient

TASK = Task(id="t", messages=(Message(role="user", content="how many?"),))
SAMPLING = Sampling(max_new_tokens=64)


class Chat:
    """Answers ``turns`` times, then ends. Subclasses fail in one place each."""

    turns = 3

    def __init__(self) -> None:
        self.actions: list[Message] = []
        self.closed = 0
        self.seed: int | None = None

    async def reset(self, task: Task, *, seed: int) -> Observation:
        self.seed = seed
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        self.actions.append(action)
        answer = Message(role="tool", content=f"result {len(self.actions)}")
        return Step(
            observation=Observation(messages=(answer,)),
            terminated=len(self.actions) >= self.turns,
            reward=0.25,
            info={"calls": 2, "good": True, "name": "x", "bad": float("nan")},
        )

    async def close(self) -> None:
        self.closed += 1


class Recording:
    """A scripted engine that remembers its calls."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.prompts: list[Prompt] = []
        self.sessions: list[str] = []
        self.samplings: list[Sampling] = []
        self.completions: list[Completion] = []
        self.released: list[str] = []

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        self.prompts.append(prompt)
        self.sessions.append(session)
        self.samplings.append(sampling)
        completion = await self.engine.generate(prompt, sampling, session=session)
        self.completions.append(completion)
        return completion

    async def release(self, session: str) -> None:
        self.released.append(session)
        await self.engine.release(session)


class Play:
    """Plays one trajectory, and keeps everything that took part in it."""

    def __init__(self, folder: Path, chat: Any = None) -> None:
        self.folder = folder
        self.chat = chat or PlainFormat(folder)
        self.environments: list[Any] = []
        self.contexts: list[EpisodeContext] = []
        self.trajectories: tuple[Trajectory, ...] = ()

    async def go(
        self,
        environment: Callable[[], Any] = Chat,
        *,
        replies: Sequence[str] = ("one", "two", "three"),
        sampling: Sampling = SAMPLING,
        blocking: bool = False,
        engine: Any = None,
        task: Task = TASK,
        images: ImagePool | None = None,
        latency_s: float = 0.0,
        **limits: Any,
    ) -> Trajectory:
        def make() -> Any:
            self.environments.append(environment())
            return self.environments[-1]

        config = ScriptedEngineConfig(replies=tuple(replies), latency_s=latency_s)
        self.engine = engine or Recording(ScriptedEngine(config, FolderWeights(folder=self.folder)))
        bounds = {
            "max_context_tokens": 1000,
            "environment_timeout_s": 5.0,
            "engine_timeout_s": 5.0,
            "trajectory_timeout_s": 10.0,
        }
        values = {**bounds, **limits}
        model_client = TokenClient(
            engine=self.engine,
            chat_format=self.chat,
            max_context_tokens=values.pop("max_context_tokens"),
            format_name=type(self.chat).__name__,
        )
        context = EpisodeContext(task, sibling=3, seed=1, timeout_s=values.pop("trajectory_timeout_s"))
        self.contexts.append(context)
        loop = AgentLoop(make_environment=make, model_client=model_client, limits=Limits(**values), blocking=blocking)
        stop = self.chat.stop_token_ids
        sampling = Sampling(max_new_tokens=sampling.max_new_tokens, stop_token_ids=stop, seed=sampling.seed)
        self.trajectories = await loop.run(context, environment_seed=11, sampling=sampling, session="s", images=images)
        return self.trajectories[0]

    def __call__(self, *arguments: Any, **keywords: Any) -> Trajectory:
        return asyncio.run(self.go(*arguments, **keywords))
