"""Tasks: seeds for the resets of a server. Demonstrations act at random, for the first steps of an untrained model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from rlcore.episodes.calls import call
from rlcore.errors import DataError
from rlcore.event_loop import EventLoop
from rlcore.types import Demonstration, Message, Task, derive_seed

from rl_plugin_openenv.config import HELD_OUT, DataConfig

DEMONSTRATED_TURNS = 8
TIMEOUT_S = 60.0


class SeededTasks:
    """The same environment with many seeds.

    Args:
        config: the arguments of its resets
        environment: creates an environment of the run
    """

    def __init__(self, config: DataConfig, environment: Callable[[], Any] | None = None) -> None:
        self._config, self._environment = config, environment

    def tasks(self, split: str) -> list[Task]:
        """One task for each seed."""
        held_out = split == "evaluation"
        count = self._config.evaluation if held_out else self._config.train
        return [self._task(number + (HELD_OUT if held_out else 0)) for number in range(count)]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Episodes of random answers from ``data.examples``.

        Raises:
            DataError: there are no examples.
        """
        if self._environment is None or not self._config.examples:
            raise DataError("there are no answers to imitate", fix="set data.examples, or warmup.steps=0")
        with EventLoop() as loop:
            for number in range(count):
                yield loop.run(self._episode(self._environment, derive_seed(seed, number)))

    async def _episode(self, make: Callable[[], Any], seed: int) -> Demonstration:
        chosen = random.Random(seed)
        environment = await call("the environment", make, timeout_s=TIMEOUT_S)
        try:
            task = self._task(chosen.randrange(HELD_OUT))
            first = await call("reset", environment.reset, task, timeout_s=TIMEOUT_S, seed=seed)
            messages, images = list(first.messages), list(first.images)
            for turn in range(DEMONSTRATED_TURNS):
                action = Message(role="assistant", content=chosen.choice(self._config.examples))
                step = await call("step", environment.step, action, timeout_s=TIMEOUT_S)
                messages.append(action)
                if step.terminated or step.truncated or turn + 1 == DEMONSTRATED_TURNS:
                    break
                messages += step.observation.messages
                images += step.observation.images
        finally:
            await call("close", environment.close, timeout_s=TIMEOUT_S)
        return Demonstration(messages=tuple(messages), tools=first.tools, images=tuple(dict.fromkeys(images)))

    def _task(self, seed: int) -> Task:
        config = self._config
        messages = () if config.prompt is None else (Message(role="user", content=config.prompt),)
        return Task(id=str(seed), messages=messages, fields={"seed": seed, "reset": config.reset})


__all__ = ["SeededTasks"]
