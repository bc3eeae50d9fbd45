"""Demonstrations of the experts, for cloning: recorded from seeds, and kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rlcore.errors import DataError, EnvironmentFailure

from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.experts.expert import expert_actions
from rl_plugin_robotwin.seeded_tasks import play


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A successful episode of the expert, of T steps."""

    seed: int
    """The seed of the reset. The actions, executed after a reset with it, give the same episode again."""
    instruction: str
    observations: dict[str, NDArray[np.generic]]
    """What the environment returned before each action: T rows each."""
    actions: NDArray[np.float32]
    """(T, A) in the units of the environment."""

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An episode of the expert, with its outcome."""

    demonstration: Demonstration
    success: bool
    """Whether the task was done at the end."""


def attempt(environment: BimanualEnvironment, seed: int) -> Attempt:
    """Let the expert play the episode of a seed until it succeeds, or the plan or the episode ends."""
    observation, info = environment.reset(seed=seed)
    played = play(environment, observation, expert_actions(environment))
    demonstration = Demonstration(
        seed=seed,
        instruction=str(info["instruction"]),
        observations=played.observations,
        actions=played.actions,
    )
    return Attempt(demonstration=demonstration, success=played.success)


def demonstrations(environment: BimanualEnvironment, count: int, *, seed: int) -> Iterator[Demonstration]:
    """Successful episodes of the expert, from consecutive seeds. Episodes that fail or cannot begin are left out.

    Args:
        environment: it is reset for each episode.
        count: how many.
        seed: the first seed.

    Raises:
        DataError: the expert fails in more than half of the episodes.
    """
    found, failure = 0, ""
    for number in range(2 * count + 8):
        if found == count:
            return
        try:
            tried = attempt(environment, seed + number)
        except EnvironmentFailure as error:
            failure = failure or f"; first failure: {error}"
            continue
        if tried.success:
            found += 1
            yield tried.demonstration
    if found < count:
        raise DataError(
            f"the expert of {environment.task.name} fails too often to record {count} demonstrations",
            found=f"{found} in {2 * count + 8} episodes, from seed {seed} on{failure}",
            where="environment",
            fix=_advice(environment),
        )


def _advice(environment: BimanualEnvironment) -> str:
    """How the expert would succeed more often."""
    config, limit = environment.config, environment.task.step_limit
    name = f"{environment.task.name} needs up to {limit}"
    parts = (
        [f"raise environment.max_steps from {environment.max_steps}: {name}"] if environment.max_steps < limit else []
    )
    if config.domain_randomization.random_table_height or config.random_home:
        parts.append("lower environment.domain_randomization.random_table_height and environment.random_home")
    return "; or ".join(parts) or "choose other seeds or another task"
