"""The flat arm as a Gymnasium environment with the same keys as the real scene. It needs neither SAPIEN nor a GPU."""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from pydantic import Field
from rlcore.config.schema import Table

Array = npt.NDArray[Any]
LINK = 0.5
STEP_RAD = 0.25
"""Largest change of a joint in one step, in radians."""
LIMIT_RAD = 2.8


class FlatArmConfig(Table):
    """A two-joint arm in a plane with a coloured floor."""

    size: Annotated[int, Field(ge=16, le=256)] = 32
    """Width and height of a picture, in pixels."""
    max_steps: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Steps after which an episode is truncated."""


class FlatArm(gymnasium.Env[dict[str, Array], Array]):
    """A two-joint arm that sees a floor whose pattern is finer, and so harder to predict, the farther it is away.

    Observations are the picture of the whole floor (``head_rgb``), the picture around the tip (``left_wrist_rgb``) and
    the angles of the joints (``state``). Actions are changes of the angles. There is no reward.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, config: FlatArmConfig | None = None) -> None:
        self.config, self.render_mode = config or FlatArmConfig(), "rgb_array"
        size = self.config.size
        picture = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        angles = gymnasium.spaces.Box(-LIMIT_RAD, LIMIT_RAD, (2,), np.float32)
        self.observation_space: gymnasium.Space[Any] = gymnasium.spaces.Dict(
            {"head_rgb": picture, "left_wrist_rgb": picture, "state": angles}
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        line = (np.arange(size) + 0.5) / size * 2 - 1
        self._x, self._y = (axis.astype(np.float32) for axis in np.meshgrid(line, -line))
        self._angles, self._step = np.zeros(2), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin near the middle of the joints' range."""
        super().reset(seed=seed)
        self._angles, self._step = self.np_random.uniform(-0.2, 0.2, 2), 0
        return self._observe(), {"instruction": "explore the environment"}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Turn the joints."""
        turn = np.clip(np.asarray(action, dtype=np.float64), -1, 1) * STEP_RAD
        self._angles, self._step = np.clip(self._angles + turn, -LIMIT_RAD, LIMIT_RAD), self._step + 1
        return self._observe(), 0.0, False, self._step >= self.config.max_steps, {}

    def render(self) -> Any:
        """Return the picture of the whole floor."""
        return self._observe()["head_rgb"]

    def _observe(self) -> dict[str, Array]:
        first, second = self._angles[0], self._angles.sum()
        elbow = LINK * np.array([np.cos(first), np.sin(first)])
        tip = elbow + LINK * np.array([np.cos(second), np.sin(second)])
        return {
            "head_rgb": self._picture(self._x, self._y, elbow, tip),
            "left_wrist_rgb": self._picture(tip[0] + self._x * 0.4, tip[1] + self._y * 0.4, elbow, tip),
            "state": self._angles.astype(np.float32),
        }

    def _picture(self, x: Array, y: Array, elbow: Array, tip: Array) -> Array:
        radius = np.hypot(x, y)
        picture = np.stack([0.5 + 0.3 * np.sin(4 * x + 6 * radius), 0.5 + 0.3 * np.cos(5 * y), 0.3 + 0 * x], axis=-1)
        for start, end, colour in ((np.zeros(2), elbow, (0.9, 0.9, 0.9)), (elbow, tip, (0.95, 0.8, 0.2))):
            way = end - start
            along = np.clip(((x - start[0]) * way[0] + (y - start[1]) * way[1]) / (LINK * LINK), 0, 1)
            near = np.hypot(x - start[0] - along * way[0], y - start[1] - along * way[1]) < 0.08
            picture[near] = colour
        picture[np.hypot(x - tip[0], y - tip[1]) < 0.12] = (0.9, 0.1, 0.1)
        result: Array = (picture * 255).astype(np.uint8)
        return result
