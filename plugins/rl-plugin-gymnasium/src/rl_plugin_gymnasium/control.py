"""Registered Gymnasium environments with continuous actions, as control environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rlcore.errors import UserError
from rlcore.plugin_calls import error_text
from rlcore.types import Task

from rl_plugin_gymnasium.control_config import ControlDataConfig, ControlEnvironmentConfig
from rl_plugin_gymnasium.dataset import HELD_OUT
from rl_plugin_gymnasium.making import fix_of


class GymnasiumControl(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A registered environment. Its observations and results are converted to arrays and numbers.

    - Nested dicts become one dict with keys such as ``agent/qpos``.
    - Tensors become arrays. A leading axis of length 1 of an environment for many episodes (``num_envs == 1``) is
      removed, also from rewards and flags.
    - Pictures [height, width, 3] of uint8 have keys that start with ``images/``.
    """

    def __init__(self, config: ControlEnvironmentConfig) -> None:
        """Make the environment.

        Raises:
            UserError: it cannot be made, its actions are not continuous, or it plays several episodes at a time.
        """
        env = _made(config)
        super().__init__(env)
        self._reward_scale = config.reward_scale
        count = getattr(env.unwrapped, "num_envs", None)
        if count not in (None, 1):
            env.close()
            raise UserError(
                "a control environment plays one episode at a time",
                found=f"num_envs={count}",
                where="environment.arguments",
                fix="environment.arguments.num_envs=1; sampler.environments sets how many are run",
            )
        self._batched = count == 1
        own = env.unwrapped
        observed = getattr(own, "single_observation_space", env.observation_space)
        acted = getattr(own, "single_action_space", env.action_space)
        if not isinstance(acted, spaces.Box):
            env.close()
            raise UserError(
                "a control policy needs continuous actions",
                found=str(acted),
                where="environment.id",
                fix="environment.id=gymnasium with data.make has discrete actions, for a language model",
            )
        self.action_space = acted
        self.observation_space = _flat_space(observed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options={} if options is None and self._batched else options)
        return self._flat(observation), dict(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        found = {name: value for name, value in info.items() if name not in ("success", "is_success")}
        success = info.get("is_success", info.get("success"))
        if success is not None:
            found["is_success"] = bool(_array(success).item())
        flags = bool(_array(terminated).item()), bool(_array(truncated).item())
        return self._flat(observation), self._reward_scale * float(_array(reward).item()), *flags, found

    def _flat(self, observation: Any) -> Any:
        if not isinstance(self.observation_space, spaces.Dict):
            return self._one(observation)
        values = dict(_leaves(observation)) if isinstance(observation, Mapping) else {"state": observation}
        return {key: self._one(values[key.removeprefix("images/")]) for key in self.observation_space.spaces}

    def _one(self, value: Any) -> Any:
        array = _array(value)
        return array[0] if self._batched and array.ndim and len(array) == 1 else array


def _made(config: ControlEnvironmentConfig) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(config.id, disable_env_checker=True, **config.arguments)
    except Exception as error:  # an environment may raise anything
        raise UserError(
            f"gymnasium.make({config.id!r}) failed",
            found=error_text(error),
            where="environment.id",
            fix=fix_of(error, "environment.id", "environment.arguments", config.id),
        ) from error


def _flat_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    if not isinstance(space, spaces.Dict):
        return space
    return spaces.Dict({_key(name, part): part for name, part in _leaves(space)})


def _key(name: str, part: spaces.Space[Any]) -> str:
    picture = isinstance(part, spaces.Box) and part.dtype == np.uint8 and len(part.shape) == 3 and part.shape[2] == 3
    return f"images/{name}" if picture else name


def _leaves(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """The leaves of a nested dict, or of a nested Dict space, in order, with joined keys."""
    found: list[tuple[str, Any]] = []
    for name, part in tree.items():
        if isinstance(part, (Mapping, spaces.Dict)):
            found += _leaves(part, f"{prefix}{name}/")
        else:
            found.append((f"{prefix}{name}", part))
    return found


def _array(value: Any) -> Any:
    """An array of a value, which may be a tensor on another device."""
    return np.asarray(value.cpu() if hasattr(value, "cpu") else value)


class ControlSeeds:
    """Tasks: seeds of a Gymnasium environment."""

    def __init__(self, config: ControlDataConfig) -> None:
        self._config = config

    def tasks(self, split: str) -> list[Task]:
        """One task for each seed. Held-out seeds are not used in training."""
        held_out = split == "evaluation"
        count, first = (self._config.evaluation, HELD_OUT) if held_out else (self._config.train, 0)
        return [Task(id=str(first + n), messages=(), fields={"seed": first + n}) for n in range(count)]


__all__ = ["ControlSeeds", "GymnasiumControl"]
