"""Make GEM environments, each with a state of the global random generators of its own.

GEM draws from the generators of the modules `random` and `numpy.random`. While an environment is called, they have the
state of this environment; afterwards, they have their former state. Calls in one process therefore take turns.
"""

from __future__ import annotations

import importlib
import logging
import random
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from types import ModuleType
from typing import Any, TypeVar

from rlcore.errors import UserError
from rlcore.plugin_calls import error_text

Value = TypeVar("Value")

RUN_CODE = ("gem.envs.code_env", "gem.envs.terminal", "gem.envs.mcpmark")
"""Modules of environments that run code of the model, which needs a sandbox."""
_turn = threading.Lock()


class World:
    """A GEM environment.

    Args:
        id: for ``gem.make``
        arguments: for ``gem.make``
        seed: of everything that is random in the environment, below 2³²

    Raises:
        UserError: the environment does not exist, cannot be made, or runs code of the model.
    """

    def __init__(self, id: str, arguments: Mapping[str, Any], seed: int) -> None:
        gem = _gem()
        known = gem.envs.registration.ENV_REGISTRY
        if id not in known:
            near = get_close_matches(id, known, n=3) or sorted(known)[:3]
            raise UserError(f"GEM has no environment {id!r}", fix=f"data.env_id={' or '.join(near)}")
        if str(known[id].entry_point).startswith(RUN_CODE):
            raise UserError(
                f"the environment {id!r} runs code of the model outside of a sandbox", fix="choose another data.env_id"
            )
        self._states: tuple[Any, Any] = _seeded(seed)
        self._seed = seed
        try:
            self._env = self._call(gem.make, id, **arguments)
        except Exception as error:  # an environment may raise anything
            raise UserError(
                f"gem.make({id!r}) failed", found=error_text(error), fix="change data.env_id or data.arguments"
            ) from error

    def reset(self) -> str:
        """Start the episode of the seed; returns the instructions and the first observation."""
        observation, info = self._call(self._env.reset, seed=self._seed)
        return _shown(observation, info)

    def step(self, action: str) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """What the model sees next, the reward, whether the episode terminated or was truncated, and the info."""
        observation, reward, terminated, truncated, info = self._call(self._env.step, action)
        return _shown(observation, info), float(reward), bool(terminated), bool(truncated), info

    def random_action(self) -> str | None:
        """A random valid action; None if the environment does not offer any."""
        if type(self._env).sample_random_action is _gem().Env.sample_random_action:
            return None
        return str(self._call(self._env.sample_random_action))

    def close(self) -> None:
        """Free what the environment holds."""
        with suppress(AttributeError):  # most environments hold nothing
            self._env.close()

    def _call(self, function: Callable[..., Value], *arguments: Any, **keywords: Any) -> Value:
        import numpy as np

        with _turn:
            outside = random.getstate(), np.random.get_state()
            _set(*self._states)
            try:
                return function(*arguments, **keywords)
            finally:
                self._states = random.getstate(), np.random.get_state()
                _set(*outside)


def _gem() -> ModuleType:
    """The module ``gem`` with its environments registered, without the changes that its import makes to logging."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gem = importlib.import_module("gem")
        importlib.import_module("gem.envs")
    root.setLevel(level)
    root.handlers[:] = handlers
    return gem


def _shown(observation: Any, info: Mapping[str, Any]) -> str:
    """The text that GEM's own wrapper shows: the observation between the prefix and the suffix of the info."""
    from gem.utils.constants import TERMINAL_STATE

    text = "" if observation == TERMINAL_STATE else str(observation)
    return "\n".join(filter(None, (info.get("prefix"), text.strip("\n"), info.get("suffix")))) if text else ""


def _seeded(seed: int) -> tuple[Any, Any]:
    import numpy as np

    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state()


def _set(python: Any, numpy: Any) -> None:
    import numpy as np

    random.setstate(python)
    np.random.set_state(numpy)


__all__ = ["World"]
