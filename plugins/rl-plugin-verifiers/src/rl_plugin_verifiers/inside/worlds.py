"""A taskset with the environment in which verifiers plays its tasks."""

# mypy: disable-error-code="import-not-found,unused-ignore"

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.utils import loaders

HARNESS = "rlcore-chat"
LONGEST_TASK = 1 << 20
"""Limit of a task in bytes."""
MOST_SCORES = 256
"""Limit of the rewards and metrics of an episode, each of which becomes a metric of the run."""


class Refused(Exception):
    """The taskset cannot be used here."""


class World:
    """Loads tasks, and plays them.

    Args:
        taskset: id of an installed package, or a path of a file
        options: keys of the taskset's configuration
        max_turns: of the agent
        client: where the model is
    """

    def __init__(self, taskset: str, options: Mapping[str, Any], max_turns: int, client: Any) -> None:
        name = _imported(taskset)
        kind = loaders.taskset_class(name)
        config = loaders.env_config_type(name)
        roles = [role for role, field in config.model_fields.items() if isinstance(field.default, vf.AgentConfig)]
        if len(roles) != 1:
            raise Refused(f"its environment has {len(roles)} agents ({', '.join(roles)}), and a policy can be only one")
        if kind.task_type().NEEDS_CONTAINER:
            raise Refused("its tasks run in containers (NEEDS_CONTAINER)")
        agent = {"runtime": SubprocessConfig(), "max_turns": max_turns, "network_notice": False}
        if loaders.default_harness_id(name) == "bash":  # it brings none
            agent["harness"] = {"id": HARNESS}
        elif loaders.harness_class(name).NEEDS_CONTAINER:
            raise Refused("its harness runs in a container (NEEDS_CONTAINER)")
        given = {"taskset": {**options, "id": name}, roles[0]: agent}
        self.env = loaders.load_environment(loaders.resolve_env_config(given))
        assert list(agent_config_fields(self.env.config)) == roles
        self._context = vf.ModelContext(model="policy", client=client)
        self._serving: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._rows: Iterator[Any] = iter(())
        self._position = -1

    def described(self) -> dict[str, Any]:
        """What the taskset is."""
        kind = type(self.env.taskset)
        methods = {name: getattr(kind.task_type(), name, None) for name in dir(kind.task_type())}
        return {
            "name": kind.__name__,
            "verifiers": importlib.import_module("verifiers").__version__,
            "rewards": sorted(name for name, method in methods.items() if hasattr(method, "reward")),
            "metrics": sorted(name for name, method in methods.items() if hasattr(method, "metric")),
        }

    def tasks(self, start: int, count: int) -> list[dict[str, Any]]:
        """At most ``count`` tasks from this one on. Raises `Refused` for a task that cannot be used."""
        if start != self._position:
            self._rows, self._position = iter(self.env.taskset), 0
            for _ in range(start):
                next(self._rows, None)
            self._position = start
        found = []
        for _ in range(count):
            task = next(self._rows, None)
            if task is None:
                break
            found.append(_row(task, self._position))
            self._position += 1
        return found

    async def play(self, data: Mapping[str, Any], watch: Callable[[Any], None]) -> dict[str, Any]:
        """Play a task, and return its scores. Raises `RuntimeError` if it cannot be scored.

        Args:
            data: of the task
            watch: gets the trace of the agent when it begins
        """
        await self._served()
        kind = type(self.env.taskset).task_type()
        task = kind(kind.data_type().model_validate(data), self.env.taskset.config.task)
        episode = await self.env.run_episode(task, self._context, on_trace=watch)
        errors = [*(error for trace in episode.traces for error in trace.errors), *episode.errors]
        if errors or not episode.ok:
            told = "; ".join(dict.fromkeys(f"{error.type}: {error.message}" for error in errors))
            raise RuntimeError(told or "the episode failed without an error")
        if len(episode.traces) != 1:
            raise RuntimeError(f"the agent was run {len(episode.traces)} times, and can be run only once")
        return _scores(episode.traces[0])

    async def _served(self) -> None:
        """Start what the episodes share, such as tool servers, in a task that ends it, too."""
        if self._serving is None or self._serving.done():
            self._ready = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._ready))
        assert self._ready is not None
        await asyncio.shield(self._ready)

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self.env.serving():
                ready.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    async def close(self) -> None:
        """End what the episodes share."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)


def _imported(taskset: str) -> str:
    """The id of a taskset. The folder of a file becomes importable, also for its tool servers."""
    if not taskset.endswith(".py"):
        return taskset
    path = Path(taskset).resolve()
    if not path.is_file():
        raise Refused(f"there is no file {path}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(path.parent))))
    return path.stem


def _row(task: Any, number: int) -> dict[str, Any]:
    """A task as plain data."""
    data = task.data
    if data.image is not None:
        raise Refused(f"task {number} runs in the container image {data.image!r}")
    if data.skills:
        raise Refused(f"task {number} has skills, which need a harness that reads them")
    messages = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        messages.append({"role": "user", "content": data.prompt})
    else:
        messages += map(message_to_wire, data.prompt or [])
    row = {"key": task.key, "messages": messages, "data": data.model_dump(mode="json", exclude_none=True)}
    if (size := len(json.dumps(row))) > LONGEST_TASK:
        raise Refused(f"task {number} has {size:,} bytes; the limit is {LONGEST_TASK:,}")
    return row


def _scores(trace: Any) -> dict[str, Any]:
    """The scores of a finished trace. Raises `RuntimeError` if one is missing, or no finite number."""
    if not trace.rewards:
        raise RuntimeError("the taskset recorded no reward")
    rewards = {name: None if reward is None else reward.score for name, reward in trace.rewards.items()}
    values = {**rewards, **trace.metrics, "the sum of the rewards": trace.reward}
    if len(values) > MOST_SCORES:
        raise RuntimeError(f"the taskset recorded {len(values):,} rewards and metrics; the limit is {MOST_SCORES}")
    for name, value in values.items():
        if value is None:
            raise RuntimeError(f"{name} was not computed ({trace.stop_condition})")
        if not math.isfinite(value):
            raise RuntimeError(f"{name} is {value}, which is no finite number")
    return {
        "reward": trace.reward,
        "rewards": rewards,
        "metrics": dict(trace.metrics),
        "truncated": trace.is_truncated or trace.is_timeout,
    }
