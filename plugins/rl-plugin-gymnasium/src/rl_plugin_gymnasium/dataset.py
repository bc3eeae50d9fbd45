"""Tasks: seeds of one environment. Demonstrations act at random, for the first steps of an untrained model."""

from __future__ import annotations

from collections.abc import Iterator

from gymnasium.spaces import Text
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, Task

from rl_plugin_gymnasium.config import DataConfig
from rl_plugin_gymnasium.making import World

HELD_OUT = 2**31
"""The first seed of the held-out tasks."""
DEMONSTRATED_TURNS = 8
BEST_OF = 8
"""Number of random episodes of which the one with the highest return is shown."""


class GymnasiumTasks:
    """The environment is made once, so that a wrong key is an error before the run starts."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        World.of(self._task("train", 0)).env.close()

    def tasks(self, split: str) -> list[Task]:
        """One task for each seed."""
        count = self._config.evaluation if split == "evaluation" else self._config.train
        return [self._task(split, number) for number in range(count)]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Episodes of random actions, each the best of `BEST_OF`.

        Raises:
            DataError: the actions are texts, which cannot be drawn at random.
        """
        world = World.of(self._task("train", 0))
        try:
            if isinstance(world.env.action_space, Text):
                raise DataError("there are no demonstrations for text actions", fix="warmup.steps=0")
            world.env.action_space.seed(seed)
            for number in range(count):
                episodes = [_random_episode(world, number % self._config.train) for _ in range(BEST_OF)]
                yield Demonstration(messages=max(episodes, key=lambda episode: episode[0])[1])
        finally:
            world.env.close()

    def _task(self, split: str, number: int) -> Task:
        config = self._config
        fields = config.model_dump(include={"make", "arguments", "show", "actions", "instructions"})
        seed = number + (HELD_OUT if split == "evaluation" else 0)
        return Task(id=f"{config.make}:{seed}", messages=(), fields={**fields, "seed": seed})


def _random_episode(world: World, seed: int) -> tuple[float, tuple[Message, ...]]:
    """The return and the messages of at most `DEMONSTRATED_TURNS` random actions."""
    observation, _ = world.env.reset(seed=seed)
    messages = [Message(role="user", content=world.opening(observation))]
    total = 0.0
    for _ in range(DEMONSTRATED_TURNS):
        action = world.env.action_space.sample()
        observation, reward, terminated, truncated, _ = world.env.step(action)
        total += float(reward)
        messages.append(Message(role="assistant", content=world.actions.text(action)))
        if terminated or truncated:
            break
        messages.append(Message(role="user", content=world.shown(observation)))
    if messages[-1].role == "user":
        messages.pop()
    return total, tuple(messages)


__all__ = ["GymnasiumTasks"]
