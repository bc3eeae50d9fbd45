"""What the datasets of robot tasks share: seeds as tasks, and demonstrations that are recorded once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rlcore.types import NumberArray, RecordedEpisode, Task

from rl_plugin_robotwin.config import HELD_OUT, SeedsConfig

Config = TypeVar("Config", bound=SeedsConfig)


class SeededTasks(ABC, Generic[Config]):
    """Seeds of the environment's task. Demonstrations are recorded once, in the run's own environment.

    Args:
        config: the table ``[data]``.
        environment: creates an environment of the run.
    """

    def __init__(self, config: Config, *, environment: Callable[[], Any] | None = None) -> None:
        self._config, self._environment = config, environment
        self._shown: list[RecordedEpisode] = []

    def tasks(self, split: str) -> Sequence[Task]:
        """One task for each seed of ``train`` or ``evaluation``."""
        held_out = split == "evaluation"
        count, first = (self._config.evaluation, HELD_OUT) if held_out else (self._config.train, 0)
        return [Task(id=str(first + n), messages=(), fields={"seed": first + n}) for n in range(count)]

    def episodes(self, count: int, *, seed: int) -> Iterator[RecordedEpisode]:
        """Demonstrations, which are the same ones for every `seed`.

        Raises:
            UserError: the environment is not one of those that the dataset is for.
            DataError: the expert fails too often, or a file cannot be read.
        """
        if len(self._shown) >= count:
            yield from self._shown[:count]
            return
        self._shown = []
        for shown in self._demonstrations(count):
            self._shown.append(shown)
            yield shown

    @abstractmethod
    def _demonstrations(self, count: int) -> Iterable[RecordedEpisode]:
        """Record or read that many demonstrations. Raises as `episodes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Actions that were taken, T of them."""

    observations: dict[str, NDArray[np.generic]]
    """What the environment returned before each action: T rows each."""
    actions: NDArray[np.float32]
    """(T, A) in the units of the environment."""
    success: bool
    """Whether the task was done at the end."""


def play(
    environment: gymnasium.Env[Any, Any], observation: Mapping[str, Any], actions: Iterable[NDArray[np.float32]]
) -> Played:
    """Take actions until they or the episode end.

    Args:
        environment: after a reset.
        observation: of the reset.
        actions: at least one.
    """
    seen, taken, success = [], [], False
    for action in actions:
        seen.append(observation)
        taken.append(action)
        observation, _, terminated, truncated, info = environment.step(action)
        success = bool(info["is_success"])
        if terminated or truncated:
            break
    rows = {name: np.stack([one[name] for one in seen]) for name in seen[0]}
    return Played(observations=rows, actions=np.stack(taken), success=success)


def episode_of(
    observations: Mapping[str, NDArray[Any]], actions: NDArray[np.float32], instruction: str
) -> RecordedEpisode:
    """An episode as rlcore stores it."""
    return RecordedEpisode(
        observations={name: NumberArray.of(rows) for name, rows in observations.items()},
        actions=NumberArray.of(actions),
        instruction=instruction,
    )
