"""Observations of a Gymnasium environment as a policy sees them: one state, pictures, an instruction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rlcore.console.wording import counted
from rlcore.errors import UserError, did_you_mean

from rlcore_control.config import INPUTS, Inputs
from rlcore_control.environments import SINGLE, Array, check_finite
from rlcore_control.models.spaces import IMAGES, Spaces

STATE = "state"
CAMERA = "camera"
"""Name of the camera of an environment whose observation is one picture."""


@dataclass(frozen=True, slots=True)
class View:
    """Which parts of an environment's observations a policy sees.

    Pictures are uint8 arrays [height, width, 3]. All other numbers are joined to one state, in the order of the space,
    unless ``sampler.inputs`` names the keys. A Text space is left out: the instruction of an episode is
    ``info["instruction"]`` of its reset.
    """

    state: tuple[str, ...]
    """Keys of the numbers of the state."""
    cameras: Mapping[str, str]
    """Key of each picture, by the name of its camera."""
    spaces: Spaces
    numbers: Mapping[str, int]
    """How many numbers each key of the environment has that is not a picture, also those that the policy ignores."""

    @classmethod
    def of(
        cls,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        inputs: Inputs | None = None,
    ) -> View:
        """The view of an environment.

        Args:
            observation_space: of the environment
            action_space: of the environment
            inputs: see `ControlSamplerConfig.inputs`

        Raises:
            UserError: an observation is not of numbers, ``inputs`` names a key that is not there, or actions are not
                continuous and bounded.
        """
        if not isinstance(action_space, spaces.Box):
            raise UserError(
                "a control policy needs continuous actions",
                found=str(action_space),
                where="the action space of the environment",
                fix="choose an environment with a Box action space; environment.id=gymnasium has discrete actions",
            )
        numbers, pictures = _parts(observation_space)
        given = dict(inputs or {})
        named = given.pop(STATE, tuple(numbers))
        state = (named,) if isinstance(named, str) else tuple(named)
        for key in state:
            _check_key(key, STATE, numbers, "numbers")
        cameras = {}
        for name, picture in given.items():
            _check_key(picture, name, pictures, "a picture")
            cameras[name] = str(picture)
        for key in pictures:
            if key not in cameras.values():
                cameras.setdefault(CAMERA if key == SINGLE else key.removeprefix(IMAGES), key)
        low, high = (tuple(map(float, np.ravel(limit))) for limit in (action_space.low, action_space.high))
        shapes = {name: pictures[key] for name, key in cameras.items()}
        width = sum(numbers[key] for key in state)
        return cls(state, cameras, Spaces(state=width, cameras=shapes, low_A=low, high_A=high), numbers)

    def arrays(self, observation: Mapping[str, Array]) -> dict[str, Array]:
        """The observation of a policy: ``state`` float32 [S], and ``images/CAMERA`` uint8 [height, width, 3].

        Raises:
            EnvironmentFailure: the state has numbers that are not finite.
        """
        found: dict[str, Array] = {f"{IMAGES}{name}": observation[key] for name, key in self.cameras.items()}
        if self.state:
            state = np.concatenate([np.ravel(observation[key]) for key in self.state]).astype(np.float32)
            check_finite({STATE: state})
            found[STATE] = state
        return found

    def check_fits(self, wanted: Spaces, *, named: str, where: str | None) -> None:
        """Check that a policy can see and control the environment. Pictures may have another size.

        Args:
            wanted: what the policy sees and decides
            named: the environment
            where: where the policy comes from

        Raises:
            UserError: it cannot; the message says which key makes it fit.
        """
        sets, others = [], []
        if wanted.state and wanted.state != self.spaces.state:
            sets.append(self._state_fix(wanted.state))
        pictures = ", ".join(self.cameras.values())
        among = f"one of {pictures}" if pictures else "a picture, which the environment does not have"
        sets += [f"{INPUTS}.{name}=KEY, {among}" for name in wanted.cameras if name not in self.cameras]
        if wanted.actions != self.spaces.actions:
            others.append(f"use a mode of control with {wanted.actions} numbers of an action, or another environment")
        if sets or others:
            raise UserError(
                f"the policy does not fit {named}",
                found=f"the environment has {self.described()}; the policy needs {described(wanted)}",
                where=where,
                fix="; ".join([*([f"set {'; '.join(sets)}"] if sets else []), *others]),
            )

    def described(self) -> str:
        """The sizes of what the policy sees, with the keys of the environment."""
        parts = ", ".join(f"{key}: {self.numbers[key]}" for key in self.state)
        return described(self.spaces, f" ({parts})" if parts else "")

    def _state_fix(self, wanted: int) -> str:
        fitting = [key for key, width in self.numbers.items() if width == wanted]
        if fitting:
            return f"{INPUTS}.{STATE}={' or '.join(fitting)}, which has {wanted} numbers"
        there = ", ".join(f"{key}: {width}" for key, width in self.numbers.items()) or "none"
        return f"{INPUTS}.{STATE} to keys with {wanted} numbers together (there are {there})"


def described(spaces: Spaces, keys: str = "") -> str:
    """The sizes of observations and actions, for messages; ``keys`` follows the size of the state."""
    cameras = ", ".join(f"{name} {size[0]}x{size[1]}" for name, size in spaces.cameras.items()) or "no camera"
    state = f"{counted(spaces.state, 'number')} of state{keys}"
    return f"{state}, {cameras}, {counted(spaces.actions, 'number')} of an action"


def _parts(space: gymnasium.Space[Any]) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """How many numbers each key has, and height and width of each picture. Raises UserError for other spaces."""
    parts: Mapping[str, Any] = space.spaces if isinstance(space, spaces.Dict) else {SINGLE: space}
    numbers: dict[str, int] = {}
    pictures: dict[str, tuple[int, int]] = {}
    for key, part in parts.items():
        if isinstance(part, spaces.Text):
            continue
        if isinstance(part, spaces.Box) and _is_picture(part):
            pictures[key] = int(part.shape[0]), int(part.shape[1])
        elif isinstance(part, (spaces.Box, spaces.MultiBinary)):
            numbers[key] = int(np.prod(part.shape))
        else:
            raise UserError(
                "a control policy sees numbers and pictures",
                found=f"{key}: {part}",
                where="the observation space of the environment",
                fix="wrap the environment, for example in gymnasium.wrappers.FlattenObservation",
            )
    return numbers, pictures


def _check_key(key: object, name: str, known: Iterable[str], what: str) -> None:
    keys = tuple(known)
    if key not in keys:
        near = did_you_mean(str(key), keys)
        raise UserError(
            f"the input {name} needs a key of the environment's observation with {what}",
            found=str(key),
            where=f"{INPUTS}.{name}",
            fix=f"{f'{near} ' if near else ''}The environment has {', '.join(keys) or 'none'}",
        )


def _is_picture(part: spaces.Box) -> bool:
    return part.dtype == np.uint8 and len(part.shape) == 3 and part.shape[2] == 3


__all__ = ["CAMERA", "STATE", "View", "described"]
