"""Environments that were written for TRL's ``environment_factory``."""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.scoring import reward_names
from rlcore.episodes.threads import run_in_thread
from rlcore.episodes.tool import ToolResult, tool
from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.plugins.loading import load_attribute
from rlcore.types import Message, Observation, RewardResult, Step, Task, ToolCall, Trajectory, thaw
from rlcore.types.checking import is_finite

RESERVED = ("reset", "get_reward")
REWARD = "reward/"
"""Begins the names of the rewards in the metrics of a trajectory."""
LONGEST_TEXT = 200_000
"""Characters of the text of ``reset``. Rendering a longer one would delay all episodes."""
ALONE_S = 10.0
"""Time in which a ``reset`` has Python's random generator to itself. One that hangs must not stop all episodes."""
_drawing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class TrlEnvironment(ToolEnvironment):
    """The public methods of the object are the tools. The reward of the last turn is what it and TRL's functions give.

    Args:
        config: a `rlcore_compat.trl_config.TrlEnvironmentConfig`, or an object with its attributes
    """

    def __init__(self, config: Any) -> None:
        made = loaded(config.factory, "environment.factory")()
        methods = dict(inspect.getmembers(made, inspect.ismethod))
        if "reset" not in methods:
            raise UserError(
                "an environment of TRL needs the method reset",
                found=f"{type(made).__name__} with {', '.join(methods) or 'no methods'}",
                where="environment.factory",
                fix="name a class that GRPOTrainer takes as environment_factory",
            )
        made_tool = tool(max_characters=config.max_tool_characters)
        public = [method for name, method in methods.items() if name not in RESERVED and not name.startswith("_")]
        super().__init__([made_tool(method) for method in public], config.max_turns)
        self._made = made
        self._functions = [loaded(name, "environment.rewards") for name in config.rewards]
        self._weights = config.reward_weights or [1.0] * len(self._functions)
        self._columns: Mapping[str, Any] = {}
        self._prompt: Sequence[Message] = ()
        self._said: list[Message] = []

    async def reset(self, task: Task, *, seed: int, context: EpisodeContext | None = None) -> Observation:
        """Call ``reset`` with the fields of the task. Its text follows that of the last message."""
        observation = await super().reset(task, seed=seed, context=context)
        self._columns = {**thaw(task.fields), "prompt": list(map(_as_dict, observation.messages))}
        text = await _alone(_seeded, seed, self._made.reset, self._columns)
        if text is not None and not isinstance(text, str):
            raise EnvironmentFailure(f"reset must return a text or None, it returned {type(text).__name__}")
        if text is not None and len(text) > LONGEST_TEXT:
            raise EnvironmentFailure(f"reset returned {len(text):,} characters; the limit is {LONGEST_TEXT:,}")
        messages = observation.messages or (Message(role="user", content=""),)
        if text is not None:
            messages = (*messages[:-1], replace(messages[-1], content=messages[-1].text + text))
        self._prompt, self._said = messages, []
        return replace(observation, messages=messages)

    async def step(self, action: Message) -> Step:
        """Call the methods in order. At the end, ask for the reward."""
        step = await super().step(action)
        self._said += (action, *step.observation.messages)
        return await self._rewarded(step) if step.terminated or step.truncated else step

    async def cut(self, written: Message | None) -> Step:
        """Ask for the reward of an episode that ends at a token limit, as TRL does."""
        if written is not None:
            self._said.append(written)
        return await self._rewarded(Step(truncated=True))

    async def _rewarded(self, step: Step) -> Step:
        rewards = await self._scored()
        known = {name: value for name, value in rewards.items() if value is not None}
        return replace(step, reward=sum(known.values()) if known else None, info={**step.info, **known})

    async def _answer_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return [await self._answer(call) for call in calls]  # one after the other, because they share their state

    async def _scored(self) -> dict[str, float | None]:
        """The rewards by name. None is a function that does not score this episode."""
        rewards: dict[str, float | None] = {}
        if inspect.ismethod(getattr(self._made, "get_reward", None)):
            rewards[REWARD + type(self._made).__name__] = _number(await _asked(self._made.get_reward), "get_reward")
        columns = {name: [value] for name, value in self._columns.items() if name != "prompt"}
        names = reward_names([function.__name__ for function in self._functions])
        for name, function, weight in zip(names, self._functions, self._weights, strict=True):
            values = await _asked(
                function,
                prompts=[list(map(_as_dict, self._prompt))],
                completions=[list(map(_as_dict, self._said))],
                environments=[self._made],
                **columns,
            )
            try:
                (value,) = values
            except (TypeError, ValueError):
                text = f"{name} must return a list with a value for each completion, it returned {values!r:.80}"
                raise EnvironmentFailure(text) from None
            rewards[REWARD + name] = None if value is None else weight * _number(value, name)
        return rewards


def trl_environment_reward(trajectory: Trajectory, task: Task) -> RewardResult:
    """The sum of the rewards. Without any, the episode is not scored."""
    value = trajectory.turn_reward
    if value is None:
        error = "there is no reward: the class has no get_reward, and no function of environment.rewards gave a number"
        return RewardResult(value=None, error=error, error_kind="not reported")
    rewards = trajectory.metrics.items()
    return RewardResult(
        value=value, components={name.removeprefix(REWARD): one for name, one in rewards if name.startswith(REWARD)}
    )


def loaded(target: str, key: str) -> Any:
    """What a key names. The folder of a file is put on the path, as ``python file.py`` does."""
    location = target.rpartition(":")[0]
    if location.endswith(".py"):
        folder = str(Path(location).expanduser().resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
    return load_attribute(target, what=f"{key} {target!r}")


def _number(value: Any, name: str) -> float:
    """A reward. Numbers of other libraries are converted."""
    try:
        reward = float(value)
    except (TypeError, ValueError, OverflowError):
        reward = float("nan")
    if not is_finite(reward):
        raise EnvironmentFailure(f"{name} must return a finite number, it returned {value!r:.80}")
    return reward


async def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread, one at a time."""
    async with _drawing.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        calling = asyncio.ensure_future(run_in_thread(function, *arguments))
        try:
            await asyncio.wait([calling], timeout=ALONE_S)
        except asyncio.CancelledError:
            calling.cancel()
            raise
    return await calling


def _seeded(seed: int, reset: Callable[..., Any], columns: Mapping[str, Any]) -> Any:
    """Call ``reset`` so that all episodes of a task begin in the same state, if it draws from Python's generator."""
    state = random.getstate()
    random.seed(seed)
    try:
        return reset(**columns)
    finally:
        random.setstate(state)


async def _asked(function: Callable[..., Any], **named: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**named)
    return await run_in_thread(function, **named)


def _as_dict(message: Message) -> dict[str, Any]:
    """A message as TRL passes it to rewards and environments."""
    said: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.name is not None:
        said["name"] = message.name
    if message.tool_calls:
        said["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": thaw(call.arguments or {})}}
            for call in message.tool_calls
        ]
    return said


__all__ = ["TrlEnvironment", "loaded", "trl_environment_reward"]
