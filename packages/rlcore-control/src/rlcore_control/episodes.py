"""Episodes as arrays, and their collection.

Axes: ``T`` the steps of an episode. Observations have ``T + 1`` rows: row ``t`` precedes action ``t``, row ``t + 1``
follows it, and the last row is the final observation, so no transition can join two episodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from rlcore.errors import EnvironmentFailure

from rlcore_control.environments import Array, Environments, Observation, Outcome, Start, check_finite
from rlcore_control.playing import Reset, play
from rlcore_control.vector import episode_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One complete episode of an environment."""

    number: int
    """Number of the episode in its run."""
    seed: int
    """The seed of its reset."""
    observations: Mapping[str, Array]
    """Observations by key, ``T + 1`` rows each."""
    actions: Array
    """The actions that the environment received, T rows."""
    rewards_T: Array
    """Rewards, float64."""
    terminated: bool
    """Whether the environment reached a final state. Otherwise, the episode was truncated."""
    stored: Mapping[str, Array] = field(default_factory=dict)
    """What the policy stored with its decisions, such as ``logprob``, T rows each."""
    terms: Mapping[str, Array] = field(default_factory=dict)
    """The environment's ``info["reward_terms"]`` by name, T rows each; 0 in steps without the term."""
    success: bool | None = None
    """`Outcome.success` of the last step."""
    instruction: str = ""
    """``info["instruction"]`` of the reset, if the environment reports it."""

    def __len__(self) -> int:
        """The number of steps, T."""
        return len(self.rewards_T)

    def window(self, start: int, length: int) -> Episode:
        """Return the steps from ``start``, with ``length + 1`` observations."""
        rows, steps = slice(start, start + length + 1), slice(start, start + length)
        return Episode(
            number=self.number,
            seed=self.seed,
            observations={key: value[rows] for key, value in self.observations.items()},
            actions=self.actions[steps],
            rewards_T=self.rewards_T[steps],
            terminated=self.terminated and start + length == len(self),
            stored={key: value[steps] for key, value in self.stored.items()},
            terms={key: value[steps] for key, value in self.terms.items()},
            success=self.success,
            instruction=self.instruction,
        )


class Recorder:
    """Collects the steps of one episode.

    Attributes:
        number: number of the episode in its run
        planned: the action that was chosen and not executed yet, if any
        steps: number of executed actions
    """

    def __init__(self, number: int, seed: int, start: Start) -> None:
        """Begin an episode. Raises EnvironmentFailure for numbers that are not finite."""
        _check(start.observation)
        self.number, self._seed = number, seed
        self.planned: list[Array] = []
        self.steps = 0
        self._instruction = str(start.info.get("instruction", ""))
        self._observations, self._choices = [dict(start.observation)], list[Choice]()
        self._outcomes: list[Outcome] = []

    @property
    def observation(self) -> Observation:
        """The latest observation."""
        return self._observations[-1]

    def choose(self, choice: Choice) -> None:
        """Plan the action of the next step, and keep what the policy stored with it."""
        self.planned.append(choice.action)
        self._choices.append(choice)

    def take(self, outcome: Outcome) -> None:
        """Add the outcome of the action. Raises EnvironmentFailure for numbers that are not finite."""
        _check({**outcome.observation, "reward": np.array(outcome.reward)})
        self._outcomes.append(outcome)
        self._observations.append(dict(outcome.observation))
        self.steps += 1

    def finish(self) -> Episode:
        """Return the episode of all steps so far, of which there must be at least one."""
        last = self._outcomes[-1]
        terms = [dict(outcome.info.get("reward_terms", {})) for outcome in self._outcomes]
        names = sorted(set().union(*terms))
        return Episode(
            number=self.number,
            seed=self._seed,
            observations={key: np.stack([one[key] for one in self._observations]) for key in self._observations[0]},
            actions=np.stack([choice.action for choice in self._choices]),
            rewards_T=np.array([outcome.reward for outcome in self._outcomes], dtype=np.float64),
            terminated=last.terminated,
            stored={key: np.stack([one.stored[key] for one in self._choices]) for key in self._choices[0].stored},
            terms={name: np.array([float(one.get(name, 0.0)) for one in terms]) for name in names},
            success=last.success,
            instruction=self._instruction,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The action of a policy, and what it stores with the decision."""

    action: Array
    stored: Mapping[str, Array] = field(default_factory=dict)


Decide = Callable[[Sequence[Recorder]], Sequence[Choice]]
"""Chooses the next action of each of several episodes in progress, which are in the order of their slots."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What `collect` returns."""

    episodes: list[Episode]
    """Complete episodes in the order of their numbers."""
    failures: dict[int, EnvironmentFailure]
    """What went wrong, by the number of the episode, which is then missing."""


def collect(environments: Environments, numbers: Sequence[int], decide: Decide, *, seed: int, limit: int) -> Collected:
    """Play one episode in each environment, all of them in lockstep.

    Args:
        environments: as many as there are numbers
        numbers: the numbers of the episodes
        decide: chooses the actions
        seed: base of the seeds of the episodes; see `episode_seed`
        limit: an episode is truncated after this many steps
    """
    failures: dict[int, EnvironmentFailure] = {}
    done: dict[int, Episode] = {}
    resets = [Reset(episode_seed(seed, number)) for number in numbers]

    def choose(recorders: Sequence[Recorder]) -> None:
        for recorder, choice in zip(recorders, decide(recorders), strict=True):
            recorder.choose(choice)

    def finish(index: int, result: Recorder | EnvironmentFailure) -> None:
        if isinstance(result, EnvironmentFailure):
            failures[numbers[index]] = result
        else:
            done[result.number] = result.finish()

    play(
        environments,
        resets,
        begin=lambda index, start: Recorder(numbers[index], resets[index].seed, start),
        decide=choose,
        finish=finish,
        max_steps=limit,
        block=environments.num_envs,
    )
    return Collected([done[number] for number in sorted(done)], dict(sorted(failures.items())))


def _check(numbers: Mapping[str, Array]) -> None:
    check_finite({name: value for name, value in numbers.items() if value.dtype.kind == "f"})


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
