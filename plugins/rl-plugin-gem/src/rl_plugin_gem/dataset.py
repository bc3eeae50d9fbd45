"""Tasks: seeds of one environment. Demonstrations act at random, for the first steps of an untrained model."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, Task, derive_seed

from rl_plugin_gem.config import DataConfig
from rl_plugin_gem.making import World

HELD_OUT = 2**31
"""The first seed of the held-out tasks."""
DEMONSTRATED_TURNS = 8
BEST_OF = 4
"""Number of random episodes of which the one with the highest return is shown."""


class GemTasks:
    """The environment is made once, so that a wrong key is an error before the run starts."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        World(config.env_id, config.arguments, 0).close()

    def tasks(self, split: str) -> list[Task]:
        """One task for each seed."""
        count = self._config.evaluation if split == "evaluation" else self._config.train
        return [self._task(split, number) for number in range(count)]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Episodes of random actions, each the best of `BEST_OF`.

        Raises:
            DataError: the environment has no random actions.
        """
        for number in range(count):
            episodes = [self._random_episode(derive_seed(seed, number, n) % HELD_OUT) for n in range(BEST_OF)]
            yield Demonstration(messages=max(episodes, key=lambda episode: episode[0])[1])

    def _random_episode(self, seed: int) -> tuple[float, tuple[Message, ...]]:
        """The return and the messages of at most `DEMONSTRATED_TURNS` random actions."""
        world = World(self._config.env_id, self._config.arguments, seed)
        try:
            first, opening, total = world.reset(), self._config.opening, 0.0
            messages = [Message(role="user", content=first if opening is None else opening)]
            for _ in range(DEMONSTRATED_TURNS):
                action = world.random_action()
                if action is None:
                    raise DataError(f"{self._config.env_id} has no random actions to imitate", fix="warmup.steps=0")
                text, reward, terminated, truncated, _ = world.step(action)
                total += reward
                messages.append(Message(role="assistant", content=action))
                if terminated or truncated:
                    break
                messages.append(Message(role="user", content=text))
        finally:
            world.close()
        if messages[-1].role == "user":
            messages.pop()
        return total, tuple(messages)

    def _task(self, split: str, number: int) -> Task:
        config = self._config
        seed = number + (HELD_OUT if split == "evaluation" else 0)
        fields = {**config.model_dump(include={"env_id", "arguments", "opening"}), "seed": seed}
        return Task(id=f"{config.env_id}:{seed}", messages=(), fields=fields)


__all__ = ["GemTasks"]
