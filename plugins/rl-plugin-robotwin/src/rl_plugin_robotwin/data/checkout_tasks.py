"""The dataset ``robotwin-checkout``: seeds of a task of RoboTwin, and demonstrations of RoboTwin's own expert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rlcore.errors import DataError, EnvironmentFailure, UserError
from rlcore.transport.control import RemoteControl
from rlcore.types import RecordedEpisode

from rl_plugin_robotwin.config import SHOWN, SeedsConfig
from rl_plugin_robotwin.data.seeded_tasks import SeededTasks, episode_of, play
from rl_plugin_robotwin.robotwin_checkout.environment import RoboTwinEnv

TRIES = 4
"""Seeds for each demonstration that are tried at most, and as many more: RoboTwin's experts fail with some."""


class CheckoutTasks(SeededTasks[SeedsConfig]):
    """Seeds of a task of RoboTwin.

    RoboTwin's expert plans with the physics. Its drive targets are then replayed as actions, and kept if the task is
    done. The environment must have the mode of control ``qpos``.
    """

    def _demonstrations(self, count: int) -> Iterator[RecordedEpisode]:
        made = self._environment() if self._environment is not None else None
        if not isinstance(own := getattr(made, "unwrapped", None), (RoboTwinEnv, RemoteControl)):
            raise UserError(
                "demonstrations of RoboTwin's experts are recorded in a task of a checkout",
                found=type(own).__name__,
                where="environment.id",
                fix="environment.id=robotwin-checkout, or warmup.steps=0",
            )
        try:
            yield from demonstrations(own, count, seed=SHOWN)
        finally:
            own.close()


def demonstrations(environment: RoboTwinEnv | RemoteControl, count: int, *, seed: int) -> Iterator[RecordedEpisode]:
    """Successful episodes of RoboTwin's expert, from consecutive seeds. Raises as `SeededTasks.episodes`."""
    found, failures = 0, []
    limit = TRIES * (count + 1)
    for number in range(limit):
        if found == count:
            return
        try:
            shown = _replayed(environment, seed + number)
        except EnvironmentFailure as error:
            failures.append(str(error))
            continue
        if isinstance(shown, RecordedEpisode):
            found += 1
            yield shown
        else:
            failures.append(shown)
    if found < count:
        raise DataError(
            f"RoboTwin's expert fails too often to record {count} demonstrations",
            found=f"{found} in {limit} episodes, from seed {seed} on; first failure: {failures[0][:300]}",
            where="environment.task",
            fix="raise environment.max_steps, choose another task, or set a lower warmup.episodes",
        )


def expert_of(environment: gymnasium.Env[Any, Any], seed: int) -> Mapping[str, Any]:
    """What `RoboTwinEnv.expert` finds for a seed, in this process or in another interpreter."""
    if isinstance(environment, RoboTwinEnv):
        return environment.expert(seed)
    remote: Any = environment
    return dict(remote.ask("expert", seed))


def repeated(
    environment: gymnasium.Env[Any, Any], motion: NDArray[np.float64]
) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """What `RoboTwinEnv.repeat` returns, in this process or from another interpreter."""
    if isinstance(environment, RoboTwinEnv):
        return environment.repeat(motion)
    remote: Any = environment
    observation, reward, terminated, truncated, info = remote.ask("repeat", motion)
    return observation, reward, terminated, truncated, info


def _replayed(environment: RoboTwinEnv | RemoteControl, seed: int) -> RecordedEpisode | str:
    """The episode of a seed, or why it is none."""
    expert = expert_of(environment, seed)
    if expert["control"] != "qpos":
        raise UserError(
            "the demonstrations of RoboTwin's expert have joint positions",
            found=f"control={expert['control']}",
            where="environment.control",
            fix="control=qpos, or warmup.steps=0",
        )
    if expert["status"] != "success":
        return f"seed {seed}: {expert['status']} {expert['error']}".strip()
    observation, info = environment.reset(seed=seed, options={"slots": dict(expert["slots"]), "attempts": 1})
    played = play(environment, observation, np.asarray(expert["actions"], np.float32))
    if not played.success:
        return f"seed {seed}: the task is not done after {len(played.actions)} actions of the expert"
    return episode_of(played.observations, played.actions, str(info["instruction"]))
