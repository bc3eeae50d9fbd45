"""The choice between environments in this process and in one process per core; seeds and actions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from rlcore.errors import UserError
from rlcore.runs.surroundings import usable_cores

from rlcore_control.environments import Array, Environments, Make, Slot, SyncEnvironments
from rlcore_control.processes import AsyncEnvironments

if TYPE_CHECKING:
    from rlcore.session.components import RunComponents

Mode = Literal["auto", "sync", "async"]

TRIAL_S = 0.2
"""Longest time for which `environments` measures an environment, in seconds."""
TRIAL_STEPS = 20
MESSAGE_S = 300e-6
"""Additional time of a step for each other process, in seconds."""


def environments(
    makes: Sequence[Make], mode: Mode = "auto", *, timeout_s: float | None = None
) -> tuple[Environments, str]:
    """Create environments in this process or in one process per core, whichever is faster.

    Observations and rewards do not depend on the choice.

    Args:
        makes: creates one environment each; picklable with cloudpickle
        mode: ``sync`` and ``async`` decide; ``auto`` measures a few steps of the first environment
        timeout_s: longest time of a call of an environment in another process; in this process, none can be ended

    Returns:
        The environments, and a description of the choice.

    Raises:
        EnvironmentFailure: an environment cannot be created.
    """
    if not makes:
        raise ValueError("at least one environment is needed")
    count, why = len(makes), "as configured"
    processes = min(count, usable_cores())
    if mode == "auto" and processes == 1:
        mode, why = "sync", "one environment" if count == 1 else "one core"
    elif mode == "auto":
        step_s = _measured(makes[0])
        here, there = count * step_s, -(-count // processes) * step_s + processes * MESSAGE_S
        mode, why = "sync" if here <= there else "async", f"a step takes {step_s * 1e3:.2f} ms; {usable_cores()} cores"
    if mode == "sync":
        return SyncEnvironments(makes), f"{count} in this process ({why})"
    return AsyncEnvironments(
        makes, processes=processes, timeout_s=timeout_s
    ), f"{count} in {processes} other processes ({why})"


def environments_of_run(run: RunComponents, name: str, count: int, mode: Mode) -> tuple[Environments, str]:
    """Create environments of a run, with its time limit for a call. As `environments`.

    Args:
        run: in progress
        name: of the environment in the run; empty for the only one
        count: their number
        mode: as for `environments`
    """
    chosen = next(one for one in run.environments if one.name == name)
    # An environment in another interpreter limits its calls itself.
    timeout_s = None if chosen.is_hosted else run.config.rollout.environment_timeout_s
    return environments([run.environment_maker(name)] * count, mode, timeout_s=timeout_s)


def _measured(make: Make) -> float:
    """Return the seconds of a step of an environment, which is closed afterwards."""
    slot = Slot(make, 0)
    space = slot.environment.action_space
    space.seed(0)
    try:
        slot.reset(0)
        ended, best, started = slot.step(space.sample()).ended, float("inf"), time.perf_counter()
        for _ in range(TRIAL_STEPS):  # the step before may have compiled or loaded something
            if ended:
                slot.reset(0)
            begun = time.perf_counter()
            ended = slot.step(space.sample()).ended
            best = min(best, time.perf_counter() - begun)
            if time.perf_counter() - started > TRIAL_S:
                break
        return best
    finally:
        slot.close()


def episode_seed(base: int, number: int) -> int:
    """Return the seed of an episode: ``base + number``.

    Environment ``i`` of process ``rank`` is slot ``rank * num_envs + i`` of the run, and plays the episodes ``slot``,
    ``slot + slots``, ``slot + 2 slots`` …. No two episodes of a run have the same seed, and the episodes of a run do
    not depend on how its slots are divided between processes.
    """
    return (base + number) % 2**32


def bounded(action: Array, space: gymnasium.Space[Any]) -> Array:
    """Return an action, clipped to the bounds of a Box space, in its dtype.

    Raises:
        UserError: the space is not a Box, or the action has another shape or numbers that are not finite.
    """
    if not isinstance(space, gymnasium.spaces.Box):
        raise UserError("control needs continuous actions", found=str(space), fix="use an environment with a Box space")
    if action.shape != space.shape or not np.isfinite(action).all():
        found = f"shape {action.shape}" if action.shape != space.shape else "NaN or infinite numbers"
        raise UserError(f"an action needs finite numbers of shape {space.shape}", found=found, fix="check the policy")
    clipped: Array = np.clip(action, space.low, space.high).astype(space.dtype)
    return clipped
