"""Two arms made of primitive shapes, each with six joints and a gripper, moved by PD drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rl_plugin_robotwin.simulation.kinematics import FORE, HIGH, JOINTS, LOW, SHOULDER, TOOL, UPPER, forward, inverse
from rl_plugin_robotwin.simulation.rotations import Array, downward, matrix_of
from rl_plugin_robotwin.simulation.shapes import Colour, Painter
from rl_plugin_robotwin.simulation.simulator import sapien

Point: TypeAlias = tuple[float, float, float]

STROKE = 0.045
"""How far each finger moves, in metres."""
JOINT_SPEED = 3.0
"""Largest speed of a drive target, in rad/s."""
GRIPPER_SPEED = 4.0
"""Largest change of the target of the opening, per second."""
STIFFNESS, DAMPING, FORCE = 1500.0, 100.0, 150.0
"""Of the joints' drives: N·m/rad, N·m·s/rad, N·m."""
FINGER_STIFFNESS, FINGER_DAMPING, FINGER_FORCE = 800.0, 40.0, 100.0
"""Of the fingers' drives: N/m, N·s/m, N. The force stays below its limit, because drives at their limit would let both
fingers slide to one side together."""
HOME_POSITION, HOME_YAW = (0.0, 0.30, 0.18), 0.0
"""Where the tool is after a reset: in front of the arm's base (x to the right, y forward, z up; metres)."""
WHITE, DARK, GREY = (0.90, 0.90, 0.92), (0.13, 0.14, 0.17), (0.45, 0.47, 0.52)
_HALF_TURN = float(np.sqrt(0.5))
_AXES = ((_HALF_TURN, 0, -_HALF_TURN, 0), (_HALF_TURN, 0, 0, _HALF_TURN), (1, 0, 0, 0))
"""Rotations that bring a joint's x axis, around which it turns, to z, y and x."""


class Arm:
    """One arm.

    Its own frame has x forward, away from its base, and z up (`kinematics`). The world's y axis is forward.

    Args:
        scene: the SAPIEN scene.
        painter: adds its shapes.
        name: of its links.
        base: (3,) world position of its base, in metres.
        accent: the colour of its joints.
        group: a bit of the arm: its own parts do not collide with each other.
    """

    def __init__(self, scene: Any, painter: Painter, name: str, base: Point, accent: Colour, group: int):
        self.name = name
        self._base = np.asarray(base, float)
        self._turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        self._body = _build(scene, painter, name, base, accent, group)
        joints = self._body.get_active_joints()
        fingers = [f"{name}_finger_left", f"{name}_finger_right"]
        order = [f"{name}_joint_{number}" for number in range(1, JOINTS + 1)] + fingers
        assert [joint.name for joint in joints] == order, "the simulator reordered the joints"
        for joint in joints[:JOINTS]:
            joint.set_drive_properties(STIFFNESS, DAMPING, FORCE)
        for joint in joints[JOINTS:]:
            joint.set_drive_properties(FINGER_STIFFNESS, FINGER_DAMPING, FINGER_FORCE)
        self._set_joint = [joint.set_drive_target for joint in joints[:JOINTS]]
        self._set_finger = [joint.set_drive_target for joint in joints[JOINTS:]]
        self.hand = self._body.find_link_by_name(f"{name}_hand")
        home = inverse(*self._to_arm(self._base + HOME_POSITION, matrix_of(downward(HOME_YAW))), np.zeros(JOINTS))
        assert home is not None
        self.home: Array = home
        self.target_joints: list[float] = []
        """Drive targets of the six joints, in radians."""
        self.target_opening = 1.0
        """Drive target of the opening: 0 closed to 1 open."""
        self._sensed: tuple[list[float], float] | None = None
        self.reset()

    def reset(self, displacement: Array | float = 0.0) -> None:
        """Move near the home position at once, at rest, with the gripper open.

        Args:
            displacement: of the joints from the home position, (6,) in radians.
        """
        joints = self.home + displacement
        positions = np.append(joints, [STROKE, STROKE]).astype(np.float32)
        self._body.set_qpos(positions)
        self._body.set_qvel(np.zeros_like(positions))
        self.drive(joints.tolist(), 1.0)
        self.moved()

    @property
    def targets(self) -> Array:
        """(6,) drive targets of the joints, in radians."""
        return np.array(self.target_joints)

    def drive(self, joints: Sequence[float], opening: float) -> None:
        """Set the drive targets at once: six joints in radians, and the opening from 0 to 1."""
        self.target_joints, self.target_opening = list(joints), opening
        for set_target, value in zip(self._set_joint, self.target_joints, strict=True):
            set_target(value)
        for set_target in self._set_finger:
            set_target(opening * STROKE)

    def approach(self, joints: Sequence[float] | Array, opening: float, seconds: float) -> None:
        """Move the drive targets towards these, by as much as the limits of speed allow in this time."""
        wanted = joints.tolist() if isinstance(joints, np.ndarray) else joints
        steps = [there - here for there, here in zip(wanted, self.target_joints, strict=True)]
        share = JOINT_SPEED * seconds / max(1e-12, max(steps), -min(steps))
        if share < 1:
            wanted = [here + share * step for here, step in zip(self.target_joints, steps, strict=True)]
        most = GRIPPER_SPEED * seconds
        self.drive(wanted, self.target_opening + min(most, max(-most, opening - self.target_opening)))

    def moved(self) -> None:
        """Forget what was measured, after time has passed."""
        self._sensed = None

    def sense(self) -> tuple[list[float], float]:
        """Measured positions of the six joints, in radians, and of the opening: 0 closed to 1 open."""
        if self._sensed is None:
            values: list[float] = self._body.get_qpos().tolist()
            self._sensed = values[:JOINTS], (values[JOINTS] + values[JOINTS + 1]) / (2 * STROKE)
        return self._sensed

    def positions(self) -> Array:
        """(7,) measured positions: six joints in radians, then the opening."""
        joints, opening = self.sense()
        return np.array([*joints, opening])

    @property
    def opening(self) -> float:
        """Measured opening of the gripper: 0 closed to 1 open."""
        return self.sense()[1]

    @property
    def pose(self) -> tuple[Array, Array]:
        """Measured pose of the tool: position (3,) in metres, quaternion (4,) with w first, both in the world."""
        pose = self.hand.entity_pose
        rotation, (px, py, pz) = pose.q.astype(float), pose.p.tolist()
        w, x, y, z = rotation.tolist()
        reach = 2 * TOOL
        tool = (px + TOOL - reach * (y * y + z * z), py + reach * (x * y + w * z), pz + reach * (x * z - w * y))
        return np.array(tool), rotation

    def target_pose(self) -> tuple[Array, Array]:
        """Pose of the tool at the drive targets: position (3,) in metres, rotation (3, 3), both in the world."""
        position, rotation = forward(self.target_joints)
        return self._base + self._turn @ position, self._turn @ rotation

    def solve(self, position: Array, rotation: Array) -> Array | None:
        """Joint positions that bring the tool to a pose in the world.

        Args:
            position: (3,) metres.
            rotation: quaternion (4,) with w first, or matrix (3, 3).

        Returns:
            (6,) radians, or None if the pose is out of reach.
        """
        matrix = matrix_of(rotation) if rotation.shape == (4,) else rotation
        return inverse(*self._to_arm(position, matrix), self.target_joints)

    def _to_arm(self, position: Array, matrix: Array) -> tuple[Array, Array]:
        return self._turn.T @ (position - self._base), self._turn.T @ matrix


def _build(scene: Any, painter: Painter, name: str, base: Point, accent: Colour, group: int) -> Any:
    """The articulation. Its links do not fall: real arms compensate their weight."""
    rubber = scene.create_physical_material(1.6, 1.4, 0.0)
    builder = scene.create_articulation_builder()
    builder.set_initial_pose(sapien.Pose(list(base), [_HALF_TURN, 0, 0, _HALF_TURN]))

    def link(parent: Any, label: str, axis: int, at: Point, low: float, high: float) -> Any:
        made = builder.create_link_builder(parent)
        made.set_name(f"{name}_{label}")
        made.collision_groups = [1, 1, group, 0]
        made.set_joint_name(f"{name}_joint_{len(builder.link_builders) - 1}")
        turn = list(_AXES[axis])
        made.set_joint_properties("revolute", [[low, high]], sapien.Pose(list(at), turn), sapien.Pose([0, 0, 0], turn))
        return made

    root = builder.create_link_builder()
    root.set_name(f"{name}_base")
    root.collision_groups = [1, 1, group, 0]
    painter.rod(root, 0.075, 0.04, DARK, at=(0, 0, 0.04), along="z")
    painter.rod(root, 0.05, 0.37, GREY, at=(0, 0, -0.37), along="z", solid=False)

    z, y, x = range(3)
    spots = ((0, 0, SHOULDER), (0, 0, 0), (UPPER, 0, 0), (FORE, 0, 0), (0, 0, 0), (0, 0, 0))
    axes = (z, y, y, x, y, x)
    labels = ("shoulder", "upper", "fore", "wrist_1", "wrist_2", "hand")
    links = [root]
    for label, axis, at, low, high in zip(labels, axes, spots, LOW.tolist(), HIGH.tolist(), strict=True):
        links.append(link(links[-1], label, axis, at, low, high))
    shoulder, upper, fore, wrist_1, wrist_2, hand = links[1:]
    painter.rod(shoulder, 0.06, 0.07, accent, at=(0, 0, -0.07), along="z")
    painter.rod(upper, 0.062, 0.065, accent, at=(0, 0, 0), along="y", solid=False)
    painter.rod(upper, 0.045, UPPER / 2 - 0.03, WHITE, at=(UPPER / 2, 0, 0))
    painter.rod(fore, 0.052, 0.055, accent, at=(0, 0, 0), along="y", solid=False)
    painter.rod(fore, 0.036, FORE / 2 - 0.04, WHITE, at=(FORE / 2, 0, 0))
    painter.rod(wrist_1, 0.030, 0.034, DARK, at=(-0.02, 0, 0))
    painter.rod(wrist_2, 0.034, 0.038, accent, at=(0, 0, 0), along="y")
    painter.rod(hand, 0.028, 0.016, WHITE, at=(0.04, 0, 0), solid=False)
    painter.box(hand, (0.022, 0.062, 0.024), DARK, at=(0.075, 0, 0))
    for label, sign in (("left", 1.0), ("right", -1.0)):
        finger = builder.create_link_builder(hand)
        finger.set_name(f"{name}_finger_{label}")
        finger.collision_groups = [1, 1, group, 0]
        finger.set_joint_name(f"{name}_finger_{label}")
        turn = [_HALF_TURN, 0, 0, sign * _HALF_TURN]  # x of the joint is the direction of opening
        finger.set_joint_properties(
            "prismatic", [[0.0, STROKE]], sapien.Pose([0, 0, 0], turn), sapien.Pose([0, 0, 0], turn)
        )
        painter.box(finger, (0.032, 0.006, 0.012), GREY, at=(TOOL - 0.020, sign * 0.006, 0), surface=rubber)
        painter.box(finger, (0.012, 0.0015, 0.0125), accent, at=(TOOL, sign * 0.0125, 0), solid=False)
    body = builder.build(fix_root_link=True)
    body.set_solver_position_iterations(15)
    body.set_solver_velocity_iterations(2)
    for part in body.links:
        part.disable_gravity = True
    return body
