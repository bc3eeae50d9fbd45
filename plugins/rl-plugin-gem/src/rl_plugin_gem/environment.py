"""A GEM environment as a chat: observations are messages, and the answer is the action."""

from __future__ import annotations

import math
from numbers import Real

from rlcore.types import Message, Observation, Step, Task

from rl_plugin_gem.config import EnvironmentConfig
from rl_plugin_gem.making import World


class GemChat:
    """Passes texts on. GEM's environments read the action in an answer themselves.

    The seed of the environment is that of the task, so a task starts in the same state whenever it is played.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._max_turns = config.max_turns
        self._world: World | None = None
        self._turns = 0
        self._ended = False

    def reset(self, task: Task, *, seed: int) -> Observation:
        """The instructions and the first observation."""
        fields = task.fields
        self._world = World(fields["env_id"], fields["arguments"], int(fields["seed"]))
        first = self._world.reset()
        return _said(first if fields["opening"] is None else fields["opening"])

    def step(self, action: Message) -> Step:
        """The next observation, with the reward of the turn."""
        if self._world is None or self._ended:
            raise RuntimeError("the episode is over")
        self._turns += 1
        text, reward, terminated, truncated, info = self._world.step(action.text)
        truncated = truncated or self._turns >= self._max_turns
        self._ended = terminated or truncated
        numbers = {name: float(value) for name, value in info.items() if isinstance(value, Real)}
        return Step(
            observation=_said(text),
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
            info={name: value for name, value in numbers.items() if math.isfinite(value)},
        )

    def close(self) -> None:
        """Close the GEM environment."""
        if self._world is not None:
            self._world.close()


def _said(text: str) -> Observation:
    return Observation(messages=(Message(role="user", content=text),) if text else ())


__all__ = ["GemChat"]
