"""The context shared by the environment, tools and rewards of one episode."""

from __future__ import annotations

import inspect
import logging
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from types import MethodType
from typing import Any

from rlcore.types import Task, derive_seed

log = logging.getLogger("rlcore.episode")


class EpisodeContext:
    """The context of one episode. Created by the agent loop, closed after the rewards have scored the episode.

    An environment's ``reset``, a tool or a reward that declares a parameter ``context`` receives it.

    Args:
        task: the task of the episode
        sibling: index among the trajectories of its group
        seed: of `random`; siblings of a group have different seeds
        timeout_s: time limit for the whole episode in seconds, starting at creation

    Attributes:
        task: as given
        sibling: as given
        random: generator for this episode only; a repeated run draws the same numbers
        deadline: time at which the episode must end, on the clock of ``time.monotonic``
        logger: adds the task and the sibling to each record
    """

    def __init__(self, task: Task, *, sibling: int = 0, seed: int = 0, timeout_s: float = float("inf")) -> None:
        self.task = task
        self.sibling = sibling
        self.deadline = time.monotonic() + timeout_s
        self.logger = logging.LoggerAdapter(log, {"task": task.key, "sibling": sibling})
        self._seed = seed
        self._scratch: Path | None = None

    @cached_property
    def random(self) -> random.Random:
        """The generator, created on first access."""
        return random.Random(derive_seed(self._seed, "episode", self.task.key, self.sibling))

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def scratch(self) -> Path:
        """A private folder, created on first access and deleted with the episode."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="rlcore-episode-"))
        return self._scratch

    def close(self) -> None:
        """Delete the scratch folder. A second call does nothing."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function declares the parameter ``context``."""
    if isinstance(function, MethodType):  # a new object in every episode
        return _method_takes_context(function.__func__)
    return _declares_context(function)


def _declares_context(function: Callable[..., Any]) -> bool:
    try:
        return "context" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled code
        return False


_method_takes_context = lru_cache(maxsize=256)(_declares_context)
