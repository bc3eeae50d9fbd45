"""Episodes as padded tensors.

Axes: B episodes, T steps, S values of the state, A values of an action. Observations have T + 1 columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from rlcore.errors import UserError
from rlcore_control.episodes import Episode
from rlcore_trainer.distributed.strategy import Strategy
from torch import Tensor

from rl_plugin_world_model.config import NetworkConfig
from rl_plugin_world_model.models.networks import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """Several episodes from their beginning, padded at the end."""

    pictures: dict[str, Tensor]
    """uint8 ``[B, T + 1, height, width, 3]`` by camera."""
    state: Tensor
    """``[B, T + 1, S]``."""
    action_BTA: Tensor
    """Actions between -1 and 1."""
    previous: Tensor
    """``[B, T + 1, A]``: the action before each observation, 0 for the first."""
    valid_BT: Tensor
    """Whether the episode has this step."""
    success_BT: Tensor
    """1 at the last step of a successful episode, else 0."""
    terminated_B: Tensor
    stored: dict[str, Tensor]
    """What the policy stored, ``[B, T, …]``."""

    @property
    def seen(self) -> Tensor:
        """Whether the episode has this observation, ``[B, T + 1]``."""
        return torch.cat([torch.ones_like(self.valid_BT[:, :1]), self.valid_BT], 1)

    def cameras(self, names: Sequence[str]) -> Tensor:
        """Return ``[B, T + 1, C, height, width, 3]``."""
        return torch.stack([self.pictures[name] for name in names], 2)


LARGEST = 100.0
"""Limits of a state beyond this are no scale for its numbers, which are then used as they are."""


class Interface:
    """What the phases read from an environment, and the scales of its numbers.

    Attributes:
        sizes: the sizes of an action and of the state
        picture: height and width of the pictures
    """

    def __init__(self, observation: Space[Any], action: Space[Any], network: NetworkConfig) -> None:
        """Check the spaces.

        Raises:
            UserError: a picture is missing or has another shape, or the actions are not a bounded Box.
        """
        wanted = sorted({*network.cameras, *network.explorer_cameras, network.target})
        found = observation.spaces if isinstance(observation, spaces.Dict) else {}
        shapes = {name: found[name].shape for name in wanted if name in found}
        if missing := [name for name in wanted if name not in shapes]:
            drawn = any(len(one.shape or ()) == 3 for one in found.values())
            keys = "set model.builder.cameras, explorer_cameras and target to keys of its observations"
            none = "add cameras, such as environment.cameras.head={width=64,height=64} of the environment robotwin"
            raise UserError(
                f"the environment has no picture {', '.join(missing)}",
                found=f"its observations are {', '.join(found) or 'a single array'}",
                fix=keys if drawn else none,
            )
        size = next(iter(shapes.values()))
        assert size is not None
        if set(shapes.values()) != {size} or len(size) != 3 or size[2] != 3 or any(n % network.patch for n in size[:2]):
            text = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise UserError(
                f"pictures need one size, which {network.patch} divides",
                found=text,
                fix="set the size of the pictures in [environment], or model.builder.patch",
            )
        if not isinstance(action, spaces.Box) or not np.isfinite([action.low, action.high]).all():
            fix = "choose a control mode with limits, such as delta_qpos"
            raise UserError("the phases need actions with limits", found=str(action), fix=fix)
        self._cameras, self._low, self._high = wanted, action.low.ravel(), action.high.ravel()
        self.picture = (size[0], size[1])
        self._shape, self._dtype = action.shape, action.dtype
        state = found.get("state")
        self.sizes = Sizes(len(self._low), 0 if state is None or state.shape is None else int(np.prod(state.shape)))
        bounded = isinstance(state, spaces.Box) and float(np.abs([state.low, state.high]).max()) <= LARGEST
        self._middle = (state.high + state.low).ravel() / 2 if bounded else np.zeros(self.sizes.state)  # type: ignore[union-attr]
        self._half = (state.high - state.low).ravel() / 2 if bounded else np.ones(self.sizes.state)  # type: ignore[union-attr]

    def action(self, unit_A: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the environment's action for one between -1 and 1."""
        middle, half = (self._high + self._low) / 2, (self._high - self._low) / 2
        scaled = np.clip(middle + unit_A * half, self._low, self._high)
        found: np.ndarray[Any, Any] = scaled.reshape(self._shape).astype(self._dtype)
        return found

    def unit(self, action_TA: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return actions of the environment between -1 and 1, ``[T, A]``."""
        middle, half = (self._high + self._low) / 2, np.maximum((self._high - self._low) / 2, 1e-9)
        unit: np.ndarray[Any, Any] = ((action_TA.reshape(len(action_TA), -1) - middle) / half).astype(np.float32)
        return unit

    def state(self, observations: Any, rows: int) -> np.ndarray[Any, Any]:
        """Return the scaled state, ``[rows, S]``; without columns if the environment has none."""
        if not self.sizes.state:
            return np.zeros((rows, 0), np.float32)
        scaled: np.ndarray[Any, Any] = (observations["state"].reshape(rows, -1) - self._middle) / self._half
        return scaled.astype(np.float32)

    def sequences(self, episodes: Sequence[Episode], device: torch.device) -> Sequences:
        """Return episodes as tensors."""
        longest = max(len(one) for one in episodes)

        def padded(rows: Sequence[np.ndarray[Any, Any]], length: int) -> Tensor:
            out = np.zeros((len(rows), length, *rows[0].shape[1:]), rows[0].dtype)
            for i, row in enumerate(rows):
                out[i, : len(row)] = row
            return torch.from_numpy(out).to(device)

        actions = padded([self.unit(one.actions) for one in episodes], longest)
        names = set.intersection(*(set(one.stored) for one in episodes))  # random actions store nothing
        success = np.zeros((len(episodes), longest), np.float32)
        for i, one in enumerate(episodes):
            success[i, len(one) - 1] = float(bool(one.success))
        return Sequences(
            pictures={
                name: padded([one.observations[name] for one in episodes], longest + 1) for name in self._cameras
            },
            state=padded([self.state(one.observations, len(one) + 1) for one in episodes], longest + 1),
            action_BTA=actions,
            previous=torch.cat([torch.zeros_like(actions[:, :1]), actions], 1),
            valid_BT=padded([np.ones(len(one), bool) for one in episodes], longest),
            success_BT=torch.from_numpy(success).to(device),
            terminated_B=torch.tensor([one.terminated for one in episodes], device=device),
            stored={name: padded([one.stored[name] for one in episodes], longest) for name in sorted(names)},
        )


def coverage(interface: Interface, strategy: Strategy, episodes: Sequence[Episode]) -> float:
    """Return the mean number of cells that a number of the state visits in an episode.

    A cell is a 32nd of the range in the space of observations. Cells of all numbers together would count little but the
    grippers, which pass through their range in a second.
    """
    counts = []
    for one in episodes:
        cells = np.floor(interface.state(one.observations, len(one) + 1) * 16)
        counts.append(np.mean([len(np.unique(column)) for column in cells.T]) if cells.size else 0.0)
    total = strategy.processes.sum({"cells": float(sum(counts)), "episodes": float(len(counts))})
    return total["cells"] / total["episodes"]


def note_on_length(batches: Sequence[Sequences], wanted: int) -> str | None:
    """Return a line that says that all episodes ended before ``wanted`` steps, None if they did not."""
    longest = max((int(batch.valid_BT.sum(1).max()) for batch in batches), default=wanted)
    if longest >= wanted:
        return None
    text = f"note      episodes end after {longest} steps, before trainer.steps_per_episode={wanted}"
    return f"{text}: environment.max_steps may be the limit"


def no_episode(failures: Mapping[int, Exception]) -> UserError:
    """Return the error for a round or a fixed set without any episode, with one of this process's failures."""
    found = str(next(iter(failures.values()), "failures in other processes"))
    return UserError("no episode could be collected", found=found, fix="check the environment")
