"""Boxes, capsules and cylinders of bodies. Without a renderer, they have no looks, and no Vulkan driver is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rl_plugin_robotwin.simulation.simulator import sapien

Colour: TypeAlias = tuple[float, float, float]


class Painter:
    """Adds shapes to the builders of one scene.

    Args:
        visible: whether the scene has a renderer.
    """

    def __init__(self, *, visible: bool):
        self.visible = visible

    def material(self, colour: Colour, *, rough: float = 0.7, metallic: float = 0.0) -> Any:
        """A material of a colour (red, green and blue from 0 to 1)."""
        material = sapien.render.RenderMaterial()
        material.base_color = [*colour, 1.0]
        material.roughness, material.metallic, material.specular = rough, metallic, 0.4
        return material

    def box(
        self,
        builder: Any,
        half_size: Sequence[float],
        colour: Colour,
        *,
        at: Sequence[float] = (0.0, 0.0, 0.0),
        surface: Any = None,
        solid: bool = True,
        density: float = 600.0,
        rough: float = 0.7,
    ) -> None:
        """Add a box.

        Args:
            builder: of the actor or link.
            half_size: (3,) half the edges, in metres.
            colour: red, green and blue from 0 to 1.
            at: (3,) its centre in the frame of the body, in metres.
            surface: its friction; None for that of the simulator.
            solid: whether it collides.
            density: in kg/m³.
            rough: from 0, a mirror, to 1.
        """
        pose, size = sapien.Pose(np.asarray(at, np.float32)), np.asarray(half_size, np.float32)
        if solid:
            builder.add_box_collision(pose, size, surface, density=density)
        if self.visible:
            builder.add_box_visual(pose, size, self.material(colour, rough=rough))

    def rod(
        self,
        builder: Any,
        radius: float,
        half_length: float,
        colour: Colour,
        *,
        at: Sequence[float],
        along: str = "x",
        solid: bool = True,
        density: float = 600.0,
    ) -> None:
        """Add a cylinder with its axis along ``x``, ``y`` or ``z`` of the body; for collisions, it is a capsule."""
        turn = {
            "x": (1.0, 0.0, 0.0, 0.0),
            "y": (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)),
            "z": (np.sqrt(0.5), 0.0, -np.sqrt(0.5), 0.0),
        }[along]
        pose = sapien.Pose(np.asarray(at, np.float32), np.asarray(turn, np.float32))
        if solid:
            builder.add_capsule_collision(pose, radius, max(half_length - radius, 1e-3), density=density)
        if self.visible:
            builder.add_cylinder_visual(pose, radius, half_length, self.material(colour, rough=0.45))
