"""One environment that plays one episode after the other. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
from rlcore.errors import EnvironmentFailure, UserError

from rlcore_control.steps import Outcome, Start, arrays_of

Make = Callable[[], gymnasium.Env[Any, Any]]


class Slot:
    """One environment. It is created again after a failure, and refuses to continue an episode that is over.

    Attributes:
        environment: the environment
    """

    def __init__(self, make: Make, number: int) -> None:
        self._make, self._number = make, number
        self.environment = make()
        self._active = self._failed = False

    def reset(self, seed: int, options: dict[str, Any] | None = None) -> Start:
        """Begin an episode.

        Raises:
            EnvironmentFailure: the environment failed.
        """
        self._active = False
        with self._watched("reset"):
            if self._failed:
                with suppress(Exception):
                    self.environment.close()
                self.environment, self._failed = self._make(), False
            observation, info = self.environment.reset(seed=seed, options=options)
            start = Start(arrays_of(observation), info)
        self._active = True
        return start

    def step(self, action: Any) -> Outcome:
        """Take an action. Raises as `reset`."""
        if not self._active:
            raise EnvironmentFailure(f"environment {self._number}: the episode is over; call reset before step")
        with self._watched("step"):
            observation, reward, terminated, truncated, info = self.environment.step(action)
            outcome = Outcome(arrays_of(observation), float(reward), bool(terminated), bool(truncated), info)
        self._active = not outcome.ended
        return outcome

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()

    @contextmanager
    def _watched(self, action: str) -> Iterator[None]:
        """Convert what an environment raises. Bad input stays what it is."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            self._active, self._failed = False, True
            if isinstance(error, EnvironmentFailure):
                raise
            text = f"{type(error).__name__}: {error}"
            raise EnvironmentFailure(f"environment {self._number} failed in {action}: {text}") from error
