"""The scene: two arms at a table, with boxes, cameras and lights.

The world's origin is the centre of the table's top: x to the right, y away from the robot, z up, in metres. A table
that is lowered leaves the robot and the origin where they are; `Scene.measured` is in the frame of the table's top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_plugin_robotwin.simulation.arms import GREY, Arm
from rl_plugin_robotwin.simulation.cameras import CameraConfig, mount
from rl_plugin_robotwin.simulation.randomisation import Variation
from rl_plugin_robotwin.simulation.rendering import Renderer
from rl_plugin_robotwin.simulation.rotations import Array
from rl_plugin_robotwin.simulation.shapes import Colour, Painter
from rl_plugin_robotwin.simulation.simulator import sapien
from rl_plugin_robotwin.tasks.layout import Box
from rl_plugin_robotwin.tasks.state import SIDES, Body, Measured, Side, Tool

CONTROL_HZ = 20
"""Control periods per second."""
SUBSTEPS = 12
"""Steps of the physics in a control period, each 1/240 s."""
TABLE = (0.60, 0.35, 0.02)
"""Half the edges of the table's top, in metres. RoboTwin's table is as large."""
FLOOR = -0.74
WALLS = (
    ((2.5, 0.02, 1.6), (0.0, 1.2, FLOOR + 1.6)),
    ((2.5, 0.02, 1.6), (0.0, -1.6, FLOOR + 1.6)),
    ((0.02, 1.4, 1.6), (-2.5, -0.2, FLOOR + 1.6)),
    ((0.02, 1.4, 1.6), (2.5, -0.2, FLOOR + 1.6)),
)
"""Half the edges and centre of each wall, in metres."""
BASES: Mapping[Side, tuple[float, float, float]] = {"left": (-0.30, -0.45, 0.0), "right": (0.30, -0.45, 0.0)}
"""World positions of the arms' bases."""
ACCENTS: Mapping[Side, Colour] = {"left": (0.16, 0.45, 0.78), "right": (0.93, 0.50, 0.13)}


class Actor:
    """A box in the scene."""

    def __init__(self, name: str, entity: Any, kind: str):
        self.name, self.kind = name, kind
        self._entity = entity
        self._body = entity.find_component_by_type(sapien.physx.PhysxRigidDynamicComponent)

    @property
    def position(self) -> Array:
        """(3,) world position of its centre, in metres."""
        position: Array = self._entity.pose.p.astype(float)
        return position

    @property
    def rotation(self) -> Array:
        """(4,) quaternion in the world, w first."""
        rotation: Array = self._entity.pose.q.astype(float)
        return rotation

    @property
    def velocity(self) -> Array:
        """(6,) m/s and rad/s; zeros if it cannot move."""
        if self._body is None:
            return np.zeros(6)
        velocity: Array = np.concatenate([self._body.linear_velocity, self._body.angular_velocity]).astype(float)
        return velocity

    def place(self, position: Sequence[float], rotation: Sequence[float] = (1.0, 0.0, 0.0, 0.0)) -> None:
        """Put it somewhere at once, at rest."""
        self._entity.pose = sapien.Pose(np.asarray(position, np.float32), np.asarray(rotation, np.float32))
        if self._body is not None:
            self._body.linear_velocity = self._body.angular_velocity = np.zeros(3, np.float32)


class Scene:
    """One scene.

    Args:
        renderer: what draws it, or None for physics alone.
        variation: colours, lights and the height of the table.
        cameras: by name.
    """

    def __init__(
        self,
        renderer: Renderer | None = None,
        *,
        variation: Variation | None = None,
        cameras: Mapping[str, CameraConfig] | None = None,
    ):
        variation = variation or Variation()
        systems = [sapien.physx.PhysxCpuSystem()]
        if renderer is not None:
            systems.append(renderer.system())
        self._scene = sapien.Scene(systems)
        self._scene.set_timestep(1 / (CONTROL_HZ * SUBSTEPS))
        self._physics = self._scene.physx_system
        self._painter = Painter(visible=renderer is not None)
        self.table_height = -variation.table_drop
        """World height of the table's top, in metres."""
        self.actors: dict[str, Actor] = {}
        self._furnish(variation)
        self.arms: dict[Side, Arm] = {
            side: Arm(self._scene, self._painter, side, BASES[side], ACCENTS[side], 1 << number)
            for number, side in enumerate(SIDES)
        }
        for box in variation.clutter:
            self.add(box)
        self._cameras = {}
        if renderer is not None:
            hands = {side: arm.hand for side, arm in self.arms.items()}
            offset = np.asarray(variation.camera_offset, float)
            self._cameras = {
                name: mount(self._scene, renderer, name, each, hands, offset) for name, each in (cameras or {}).items()
            }

    def add(self, box: Box) -> Actor:
        """Add a box of a layout, which is in the frame of the table's top."""
        x, y, z = box.position
        rotation = (np.cos(box.yaw / 2), 0.0, 0.0, np.sin(box.yaw / 2))
        position = (x, y, z + self.table_height)
        return self.add_box(box.name, box.half_size, position, box.colour, rotation=rotation, kind=box.kind)

    def add_box(
        self,
        name: str,
        half_size: Sequence[float],
        position: Sequence[float],
        colour: Colour,
        *,
        rotation: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
        kind: str = "block",
    ) -> Actor:
        """Add a box.

        Args:
            name: unique in the scene.
            half_size: (3,) half the edges, in metres.
            position: (3,) of its centre in the world, in metres.
            colour: red, green and blue from 0 to 1.
            rotation: quaternion (4,) in the world, w first.
            kind: ``block`` moves, ``pad`` is fixed, ``marker`` is only seen.
        """
        if name in self.actors:
            raise ValueError(f"the scene already has a box named {name!r}")
        builder = self._scene.create_actor_builder()
        grip = self._scene.create_physical_material(1.0, 0.9, 0.0)
        self._painter.box(builder, half_size, colour, surface=grip, solid=kind != "marker", density=400.0)
        builder.set_initial_pose(sapien.Pose(np.asarray(position, np.float32), np.asarray(rotation, np.float32)))
        builder.set_name(name)
        entity = builder.build() if kind == "block" else builder.build_static()
        actor = self.actors[name] = Actor(name, entity, kind)
        return actor

    def advance(self, control_periods: int = 1, *, substeps: int = SUBSTEPS) -> int:
        """Let time pass: each period is `substeps` steps of the physics. Returns the number of all steps."""
        step, count = self._physics.step, control_periods * substeps
        for _ in range(count):
            step()
        for arm in self.arms.values():
            arm.moved()
        return count

    def measured(self) -> Measured:
        """The measured state, in the frame of the table's top."""
        bodies = {name: Body(position=actor.position, rotation=actor.rotation) for name, actor in self.actors.items()}
        tools = {}
        for side, arm in self.arms.items():
            position, rotation = arm.pose
            tools[side] = Tool(position=position, rotation=rotation, opening=arm.opening)
        if self.table_height:
            for position in [*(body.position for body in bodies.values()), *(tool.position for tool in tools.values())]:
                position[2] -= self.table_height
        return Measured(bodies=bodies, tools=tools)

    def pictures(self, names: Sequence[str]) -> dict[str, NDArray[np.uint8]]:
        """A picture of each of these cameras: uint8 (height, width, 3)."""
        self._scene.update_render()
        for name in names:  # one is drawn while the next one is prepared
            self._cameras[name].take()
        return {name: self._cameras[name].picture() for name in names}

    def close(self) -> None:
        """Free the scene."""
        self._cameras.clear()
        self.actors.clear()
        self.arms.clear()
        self._scene.clear()

    def _furnish(self, variation: Variation) -> None:
        scene, painter = self._scene, self._painter
        room = scene.create_actor_builder()
        red, green, blue = variation.table_colour
        wood = (0.75 * red, 0.75 * green, 0.75 * blue)
        top = self.table_height
        painter.box(room, TABLE, variation.table_colour, at=(0, 0, top - TABLE[2]), rough=0.6)
        for x in (-0.54, 0.54):
            for y in (-0.29, 0.29):
                half = (top - 2 * TABLE[2] - FLOOR) / 2
                painter.box(room, (0.025, 0.025, half), wood, at=(x, y, FLOOR + half), solid=False)
        painter.box(room, (4.0, 4.0, 0.02), (0.34, 0.37, 0.40), at=(0, 0, FLOOR - 0.02), rough=0.9)
        for size, at in WALLS:
            painter.box(room, size, variation.wall_colour, at=at, solid=False, rough=0.9)
        painter.box(room, (0.45, 0.08, 0.03), GREY, at=(0, -0.46, -0.08), solid=False)
        room.set_name("room")
        room.build_static()
        if painter.visible:
            scene.set_ambient_light(list(variation.ambient))
            scene.add_directional_light(
                list(variation.light_direction),
                list(variation.light_colour),
                shadow=True,
                shadow_scale=1.5,
                shadow_map_size=1024,
            )
            for x in (-1.0, 1.0):
                scene.add_point_light([x, 0.4, 1.4], [1.0, 0.95, 0.88])
