"""The dataset ``robotwin-checkout``: seeds of a task of RoboTwin, and demonstrations of RoboTwin's own expert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rlcore.errors import DataError, EnvironmentFailure, UserError
from rlcore.transport.control import RemoteControl
from rlcore.types import NumberArray, RecordedEpisode, Task

from rl_plugin_robotwin.data_config import HELD_OUT, SHOWN, SeedsConfig
from rl_plugin_robotwin.robotwin_checkout.environment import RoboTwinEnv

TRIES = 4
"""Seeds for each demonstration that are tried at most, and as many more: RoboTwin's experts fail with some."""


class CheckoutTasks:
    """Seeds of the environment's task. Demonstrations are recorded once, in the run's own environment.

    Args:
        config: the table ``[data]``.
        environment: creates an environment of the run.
    """

    def __init__(self, config: SeedsConfig, *, environment: Callable[[], Any] | None = None) -> None:
        self._config, self._environment = config, environment
        self._shown: list[RecordedEpisode] = []

    def tasks(self, split: str) -> Sequence[Task]:
        """One task for each seed of ``train`` or ``evaluation``."""
        held_out = split == "evaluation"
        count, first = (self._config.evaluation, HELD_OUT) if held_out else (self._config.train, 0)
        return [Task(id=str(first + n), messages=(), fields={"seed": first + n}) for n in range(count)]

    def episodes(self, count: int, *, seed: int) -> Iterator[RecordedEpisode]:
        """Demonstrations of RoboTwin's expert, which are the same ones for every `seed`.

        The expert plans with the physics. Its drive targets are then replayed as actions, and kept if the task is done.

        Raises:
            UserError: the environment is not a task of a checkout, or has another mode of control than ``qpos``.
            DataError: the expert fails too often.
        """
        if len(self._shown) < count:
            made = self._environment() if self._environment is not None else None
            if not isinstance(own := getattr(made, "unwrapped", None), (RoboTwinEnv, RemoteControl)):
                raise UserError(
                    "demonstrations of RoboTwin's experts are recorded in a task of a checkout",
                    found=type(own).__name__,
                    where="environment.id",
                    fix="environment.id=robotwin-checkout, or warmup.steps=0",
                )
            try:
                self._shown = list(demonstrations(own, count, seed=SHOWN))
            finally:
                own.close()
        yield from self._shown[:count]


def demonstrations(environment: RoboTwinEnv | RemoteControl, count: int, *, seed: int) -> Iterator[RecordedEpisode]:
    """Successful episodes of RoboTwin's expert, from consecutive seeds. Raises as `CheckoutTasks.episodes`."""
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


def expert_of(environment: RoboTwinEnv | RemoteControl, seed: int) -> Mapping[str, Any]:
    """What `RoboTwinEnv.expert` finds for a seed, in this process or in another interpreter."""
    if isinstance(environment, RoboTwinEnv):
        return environment.expert(seed)
    return dict(environment.ask("expert", seed))


def check_replays(control: str, *, where: str) -> None:
    """Raise UserError unless the expert's actions, which are joint positions, are those of the environment."""
    if control != "qpos":
        raise UserError(
            "RoboTwin's expert acts with joint positions",
            found=f"control={control}",
            where=where,
            fix="control=qpos",
        )


def _replayed(environment: RoboTwinEnv | RemoteControl, seed: int) -> RecordedEpisode | str:
    """The episode of a seed, or why it is none."""
    expert = expert_of(environment, seed)
    check_replays(str(expert["control"]), where="environment.control")
    if expert["status"] != "success":
        return f"seed {seed}: {expert['status']} {expert['error']}".strip()
    observation, info = environment.reset(seed=seed, options={"slots": dict(expert["slots"]), "attempts": 1})
    seen, actions, done = [], [], False
    for action in np.asarray(expert["actions"], np.float32):
        seen.append(observation)
        actions.append(action)
        observation, _, terminated, truncated, last = environment.step(action)
        done = bool(last["is_success"])
        if terminated or truncated:
            break
    if not done:
        return f"seed {seed}: the task is not done after {len(actions)} actions of the expert"
    return RecordedEpisode(
        observations={name: NumberArray.of(np.stack([one[name] for one in seen])) for name in seen[0]},
        actions=NumberArray.of(np.stack(actions)),
        instruction=str(info["instruction"]),
    )
