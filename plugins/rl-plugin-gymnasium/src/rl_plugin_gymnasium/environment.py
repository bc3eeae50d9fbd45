"""A Gymnasium environment as a chat: observations are messages, and an answer is an action."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from rlcore.types import Message, Observation, Step, Task

from rl_plugin_gymnasium.config import EnvironmentConfig
from rl_plugin_gymnasium.making import World
from rl_plugin_gymnasium.spaces import InvalidAction


class GymnasiumChat:
    """Shows observations as text and parses actions from the answers.

    An answer without a valid action costs a turn, and the next message says what is valid. The seed of the environment
    is that of the task, so a task starts in the same state whenever it is played.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._max_turns = config.max_turns
        self._world: World | None = None
        self._turns = 0
        self._ended = False

    def reset(self, task: Task, *, seed: int) -> Observation:
        """The instructions and the first observation."""
        self._world = World.of(task)
        observation, _ = self._world.env.reset(seed=int(task.fields["seed"]))
        return _said(self._world.opening(observation))

    def step(self, action: Message) -> Step:
        """The next observation, with the reward of the turn."""
        if self._world is None or self._ended:
            raise RuntimeError("the episode is over")
        self._turns += 1
        last = self._turns >= self._max_turns
        try:
            chosen = self._world.actions.parse(action.text)
        except InvalidAction as invalid:
            self._ended = last
            return Step(observation=_said(str(invalid)), truncated=last, info={"invalid_actions": 1})
        observation, reward, terminated, truncated, info = self._world.env.step(chosen)
        self._ended = bool(terminated or truncated or last)
        return Step(
            observation=_said(self._world.shown(observation)),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated or last) and not terminated,
            info={**_numbers(info), "invalid_actions": 0},
        )

    def close(self) -> None:
        """Close the Gymnasium environment."""
        if self._world is not None:
            self._world.env.close()


def _said(text: str) -> Observation:
    return Observation(messages=(Message(role="user", content=text),))


def _numbers(info: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in info.items() if isinstance(value, Real) and math.isfinite(value)}


__all__ = ["GymnasiumChat"]
