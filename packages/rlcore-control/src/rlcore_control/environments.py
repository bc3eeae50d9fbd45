"""Several environments that are stepped together, and those of this process.

There is no automatic reset. An environment whose episode ended is reset by the caller, with the seed of its next
episode, so no observation of one episode is ever returned as part of another. Only the environments that are named in
a call advance, so a rollout can end while some of them are idle. One that raises does not affect the others: its answer
is an `EnvironmentFailure`, and its next reset creates it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rlcore.errors import EnvironmentFailure, UserError

Array = npt.NDArray[Any]
Observation = Mapping[str, Array]
"""Arrays by key. An environment whose observation is one array has the key `SINGLE`."""

SINGLE = "state"


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a reset."""

    observation: Observation
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step. The observation is always the one after this action, also at the end of an episode."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the episode is over, so that the environment must be reset."""
        return self.terminated or self.truncated

    @property
    def success(self) -> bool | None:
        """``info["is_success"]`` or ``info["success"]``; None if the environment reports neither."""
        found = self.info.get("is_success", self.info.get("success"))
        return None if found is None else bool(found)


def arrays_of(observation: Any) -> dict[str, Array]:
    """Return copies of the arrays of an observation. Texts and other values that are not numbers are left out."""
    found = observation if isinstance(observation, Mapping) else {SINGLE: observation}
    arrays = {str(key): np.array(value) for key, value in found.items()}
    return {key: value for key, value in arrays.items() if value.dtype.kind in "biuf"}


def check_finite(numbers: Mapping[str, Any]) -> None:
    """Raise EnvironmentFailure if numbers of an environment, by name, are NaN or infinite."""
    if bad := [name for name, value in numbers.items() if not np.isfinite(value).all()]:
        raise EnvironmentFailure(f"the environment returned NaN or infinite numbers: {', '.join(bad)}")


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


Calls = Mapping[int, tuple[str, tuple[Any, ...]]]
"""The name of a method of `Slot` and its arguments, by the number of the environment."""


class Environments(ABC):
    """Environments with the numbers 0 to ``num_envs - 1`` and the same spaces.

    `reset` and `step` wait for all environments of a call. `begin` and `act` do not wait: `receive` returns the answers
    as they arrive, so that an environment never waits for another one. An environment has at most one call that was not
    answered.
    """

    num_envs: int
    observation_space: gymnasium.Space[Any]
    """The space of the observations of each environment."""
    action_space: gymnasium.Space[Any]
    """The space of the actions of each environment."""

    def begin(self, seeds: Mapping[int, int], options: Mapping[int, dict[str, Any]] | None = None) -> None:
        """Begin an episode in each environment of ``seeds``; `receive` returns its `Start`."""
        self._submit({i: ("reset", (seed, (options or {}).get(i))) for i, seed in seeds.items()})

    def act(self, actions: Mapping[int, Any]) -> None:
        """Take an action in each environment of ``actions``; `receive` returns its `Outcome`."""
        self._submit({i: ("step", (action,)) for i, action in actions.items()})

    def receive(self) -> dict[int, Start | Outcome | EnvironmentFailure]:
        """Wait until there are answers, and return them. Without a call that was not answered, there are none.

        Raises:
            UserError: an environment was given bad input, such as an action of the wrong size.
        """
        found = self._answers()
        if any(isinstance(answer, UserError) for answer in found.values()):
            while more := self._answers():
                found |= more
        return _without_user_errors(found)

    def reset(
        self, seeds: Mapping[int, int], options: Mapping[int, dict[str, Any]] | None = None
    ) -> dict[int, Start | EnvironmentFailure]:
        """Begin an episode in each environment of ``seeds``, and wait for all. Raises as `receive`."""
        self.begin(seeds, options)
        return self._all(seeds)

    def step(self, actions: Mapping[int, Any]) -> dict[int, Outcome | EnvironmentFailure]:
        """Take an action in each environment of ``actions``, and wait for all. Raises as `receive`.

        It is a failure if the episode of an environment is over.
        """
        self.act(actions)
        return self._all(actions)

    @abstractmethod
    def close(self) -> None:
        """Close all environments. May be called several times."""

    @abstractmethod
    def _submit(self, calls: Calls) -> None:
        """Make calls, or keep them for `_answers`."""

    @abstractmethod
    def _answers(self) -> dict[int, Any]:
        """Make the calls that were kept, wait until some calls are answered, and return these answers and errors."""

    def _all(self, numbers: Iterable[int]) -> dict[int, Any]:
        """Return the answers of all environments, in the order of ``numbers``."""
        found: dict[int, Any] = {}
        while more := self._answers():
            found |= more
        return _without_user_errors({i: found[i] for i in numbers})


class SyncEnvironments(Environments):
    """Environments in this process, stepped one after the other."""

    def __init__(self, makes: Sequence[Make]) -> None:
        self._slots = [Slot(make, number) for number, make in enumerate(makes)]
        self._waiting: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self.num_envs = len(self._slots)
        first = self._slots[0].environment
        self.observation_space, self.action_space = first.observation_space, first.action_space

    def close(self) -> None:
        """Close all environments."""
        for slot in self._slots:
            slot.close()

    def _submit(self, calls: Calls) -> None:
        self._waiting |= calls

    def _answers(self) -> dict[int, Any]:
        calls, self._waiting = self._waiting, {}
        return {i: answer(self._slots[i], *call) for i, call in calls.items()}


def answer(slot: Slot, name: str, arguments: tuple[Any, ...]) -> Any:
    """Call a method of an environment. Return what it returned, its failure, or the error about bad input."""
    try:
        return getattr(slot, name)(*arguments)
    except (EnvironmentFailure, UserError) as error:
        return error


def _without_user_errors(answers: dict[int, Any]) -> dict[int, Any]:
    for found in answers.values():
        if isinstance(found, UserError):
            raise found
    return answers
