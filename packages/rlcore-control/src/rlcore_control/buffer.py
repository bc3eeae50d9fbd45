"""A store of complete episodes in the order in which they were collected."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from rlcore_control.episodes import Episode


class EpisodeBuffer:
    """Keeps the newest episodes. When one of its limits is exceeded, it removes the oldest ones, each as a whole.

    Attributes:
        transitions: the number of steps of all stored episodes
    """

    def __init__(self, *, max_episodes: int, max_transitions: int) -> None:
        """Create an empty buffer. The newest episode is kept even if it is longer than ``max_transitions``."""
        self._max_episodes, self._max_transitions = max_episodes, max_transitions
        self._episodes: deque[Episode] = deque()
        self.transitions = 0

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self._episodes)

    def __iter__(self) -> Iterator[Episode]:
        """The episodes, oldest first."""
        return iter(self._episodes)

    def add(self, episode: Episode) -> None:
        """Append an episode.

        Raises:
            ValueError: the episode has no steps.
        """
        if not len(episode):
            raise ValueError("an episode needs at least one step")
        self._episodes.append(episode)
        self.transitions += len(episode)
        while len(self) > 1 and (len(self) > self._max_episodes or self.transitions > self._max_transitions):
            self.transitions -= len(self._episodes.popleft())

    def window(self, length: int, generator: np.random.Generator) -> Episode | None:
        """Return consecutive steps of one episode, drawn uniformly over all positions.

        Returns:
            ``length`` steps; None if no episode is that long.
        """
        positions = [max(0, len(episode) - length + 1) for episode in self._episodes]
        total = sum(positions)
        if not total:
            return None
        drawn = int(generator.integers(total))
        for episode, count in zip(self._episodes, positions, strict=True):
            if drawn < count:
                return episode.window(drawn, length)
            drawn -= count
        raise AssertionError("unreachable")

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes as tensors and plain values, which ``torch.load`` reads with ``weights_only``."""
        return {"episodes": [_plain(episode) for episode in self._episodes]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the contents by those of `state_dict`. The limits stay those of this buffer."""
        self._episodes.clear()
        self.transitions = 0
        for found in state["episodes"]:
            self.add(Episode(**{name: _arrays(value) for name, value in found.items()}))


def _plain(episode: Episode) -> dict[str, Any]:
    return {one.name: _tensors(getattr(episode, one.name)) for one in fields(Episode)}


def _tensors(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _tensors(one) for name, one in value.items()}
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _arrays(one) for name, one in value.items()}
    return value.numpy() if isinstance(value, torch.Tensor) else value
