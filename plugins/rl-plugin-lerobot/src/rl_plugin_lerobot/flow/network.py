"""What the networks of flow policies have in common.

Axes: B batch, C colours, Y and X rows and columns, L tokens of the prompt, S padded values of the state, H actions of a
predicted chunk, A padded values of an action, D features, F frequencies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn


class FlowNetwork(nn.Module, ABC):
    """A velocity field from noise to actions, given an observation.

    Args:
        width: the number of features
        chunk: actions of a predicted chunk
        actions: values of an action, with padding
    """

    def __init__(self, *, width: int, chunk: int, actions: int) -> None:
        super().__init__()
        self.width, self.chunk, self.actions = width, chunk, actions

    def train(self, mode: bool = True) -> Self:
        """Stay without dropout, so that a decision has the same density when it is evaluated."""
        return super().train(False)

    @abstractmethod
    def picture(self, image_BCYX: Tensor) -> Tensor:
        """Return pictures in the size of the network with values from -1 to 1, from values from 0 to 1."""

    @abstractmethod
    def look(self, images_BCYX: Sequence[Tensor], prompt_BL: Tensor, state_BS: Tensor) -> Any:
        """Compute what all steps of a decision share.

        Args:
            images_BCYX: what `picture` returns, for each camera
            prompt_BL: token ids, or `PADDING`
            state_BS: normalised and padded state
        """

    @abstractmethod
    def velocity(self, seen: Any, x_BHA: Tensor, time_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the velocity [B, H, A] towards the actions, and features [B, D] of the observation.

        The features are those of the token of the state, which reads pictures and prompt, but not the actions.

        Args:
            seen: what `look` returns
            x_BHA: a point of the flow, normalised and padded
            time_B: as the network counts it, from 1 (noise) to 0 (actions)
        """

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights; see `Names.save`."""


class DoubleTime(nn.Module):
    """Describes the time as openpi and LeRobot do. transformers computes the same in float32.

    The highest frequency is large, so the difference would be visible in actions.
    """

    frequency_F: Tensor

    def __init__(self, count: int, shortest: float, longest: float) -> None:
        super().__init__()
        fraction_F = torch.linspace(0, 1, count, dtype=torch.float64)
        frequency_F = 2 * math.pi / (shortest * (longest / shortest) ** fraction_F)
        self.register_buffer("frequency_F", frequency_F, persistent=False)

    def forward(self, time_B: Tensor) -> Tensor:
        """Return sines and cosines [B, 2 F] of a time."""
        angle_BF = time_B.double()[:, None] * self.frequency_F
        return torch.cat([angle_BF.sin(), angle_BF.cos()], 1).to(time_B.dtype)


def letterboxed(image_BCYX: Tensor, size: int, *, corner: bool = False) -> Tensor:
    """Return pictures scaled to fit a square, with black bars, and with values from -1 to 1.

    Args:
        image_BCYX: pictures with values from 0 to 1
        size: the side of the square
        corner: whether the bars are on the left and at the top, instead of on both sides
    """
    height, width = image_BCYX.shape[2:]
    if (height, width) != (size, size):
        ratio = max(height, width) / size
        rows, columns = max(1, int(height / ratio)), max(1, int(width / ratio))
        image_BCYX = nn.functional.interpolate(image_BCYX, (rows, columns), mode="bilinear")
        top, left = size - rows, size - columns
        if not corner:
            image_BCYX, top, left = image_BCYX.clamp(0, 1), top // 2, left // 2
        image_BCYX = nn.functional.pad(image_BCYX, (left, size - columns - left, top, size - rows - top))
    return image_BCYX * 2 - 1
