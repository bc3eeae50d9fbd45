"""Cameras: on a stand above the robot, on each hand, and one for people who watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from rlcore.config.schema import Table

from rl_plugin_robotwin.simulation.rotations import Array, quaternion_of

NAMES = ("head", "left_wrist", "right_wrist")
"""Cameras that policies can see with. The key of a picture in an observation is ``<name>_rgb``."""
WATCH = "watch"
"""The camera of `gymnasium.Env.render`."""
STANDS: Mapping[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "head": ((0.0, -0.52, 0.66), (0.0, 0.03, 0.03)),
    WATCH: ((0.50, 0.78, 0.58), (0.0, -0.13, 0.13)),
}
"""World position of a camera, and the point that it looks at, in metres."""
IN_HAND = ((0.065, 0.0, 0.085), (0.17, 0.0, 0.005))
"""The same of a wrist camera, in the frame of the hand."""


class CameraConfig(Table):
    """``[environment.cameras.<name>]``."""

    width: Annotated[int, Field(ge=8, le=1920)] = 64
    """Pixels."""
    height: Annotated[int, Field(ge=8, le=1080)] = 64
    """Pixels."""
    vertical_angle: Annotated[float, Field(gt=5, lt=150)] = 58.0
    """Vertical field of view, in degrees."""


class Camera:
    """A camera in a scene."""

    def __init__(self, component: Any):
        self._component = component

    def take(self) -> None:
        """Begin to draw what it sees now."""
        self._component.take_picture()

    def picture(self) -> NDArray[np.uint8]:
        """uint8 (height, width, 3): what was drawn."""
        colour = self._component.get_picture("Color")[..., :3]
        pixels: NDArray[np.uint8] = (np.clip(colour, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
        return pixels


def mount(
    scene: Any, renderer: Any, name: str, config: CameraConfig, hands: Mapping[Any, Any], offset: Array
) -> Camera:
    """Add a camera to a scene.

    Args:
        scene: the SAPIEN scene.
        renderer: what draws it.
        name: one of `NAMES`, or `WATCH`.
        config: its size and angle.
        hands: the last link of each arm.
        offset: (3,) displacement of the head camera, in metres.
    """
    component = renderer.camera(config.width, config.height)
    component.set_fovy(np.deg2rad(config.vertical_angle), compute_x=True)
    component.near, component.far = 0.01, 10.0
    component.name = name
    side = name.removesuffix("_wrist")
    if side in hands:
        hands[side].entity.add_component(component)
        component.local_pose = renderer.pose(*_looking(*IN_HAND))
    else:
        stand, target = STANDS[name]
        at = np.asarray(stand) + (offset if name == "head" else 0.0)
        renderer.stand(scene, component, *_looking(at, target))
    return Camera(component)


def _looking(at: Any, target: Any) -> tuple[Array, Array]:
    """Position and quaternion of a camera: x forward, y left, z up."""
    position = np.asarray(at, float)
    forward = np.asarray(target, float) - position
    forward /= np.linalg.norm(forward)
    left = np.cross([0.0, 0.0, 1.0], forward)
    left /= np.linalg.norm(left)
    return position, quaternion_of(np.stack([forward, left, np.cross(forward, left)], axis=1))
