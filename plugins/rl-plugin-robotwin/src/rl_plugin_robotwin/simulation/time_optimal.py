"""Time-optimal moves: an action takes as long as the arms need to reach its goal and to stop there.

The drive targets of an arm move on the straight line between its present targets and the goal. Their speed is a
trapezoid: the joint with the longest way accelerates, moves at its largest speed and brakes, and the others keep its
pace. The two arms and their grippers arrive at the same time, so only the one with the longest way is at its limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl_plugin_robotwin.simulation.arms import GRIPPER_SPEED, JOINT_SPEED
from rl_plugin_robotwin.simulation.rotations import Array
from rl_plugin_robotwin.simulation.scene import CONTROL_HZ, SUBSTEPS, Scene

ACCELERATION = 15.0
"""Largest acceleration of a drive target, in rad/s². The largest speed is `arms.JOINT_SPEED`, 3 rad/s."""
PHYSICS_HZ = CONTROL_HZ * SUBSTEPS
LEAST_STEPS = SUBSTEPS
"""Steps of the physics in an action at least: a control period, in which an arm that holds still comes to rest."""
_ROUNDING = 1e-9


def seconds_of(distance: float) -> float:
    """The shortest time in which a joint moves by `distance` rad, from rest to rest."""
    if distance >= JOINT_SPEED**2 / ACCELERATION:
        return distance / JOINT_SPEED + JOINT_SPEED / ACCELERATION
    return 2 * math.sqrt(distance / ACCELERATION)


def share_at(distance: float, fraction: float) -> float:
    """The share of its way that a joint has moved, after a fraction of `seconds_of`. Both are from 0 to 1."""
    if fraction > 0.5:
        return 1 - share_at(distance, 1 - fraction)
    if distance <= 0:
        return fraction
    seconds = seconds_of(distance)
    time, accelerating = fraction * seconds, min(seconds / 2, JOINT_SPEED / ACCELERATION)
    if time <= accelerating:
        return ACCELERATION * time**2 / 2 / distance
    return (ACCELERATION * accelerating**2 / 2 + JOINT_SPEED * (time - accelerating)) / distance


@dataclass(frozen=True, slots=True)
class Way:
    """The way of one arm to the goal of an action."""

    arm: Any
    """The `arms.Arm`, whose drive targets are the start."""
    start: tuple[list[float], float]
    """Joints (6) in rad, and opening."""
    goal: tuple[list[float], float]

    @classmethod
    def of(cls, arm: Any, joints: Sequence[float] | Array | None, opening: float) -> Way:
        """The way from the present drive targets to joints (6) and an opening. Without joints, the arm holds still."""
        start = list(arm.target_joints), float(arm.target_opening)
        return cls(arm, start, (start[0] if joints is None else [float(joint) for joint in joints], float(opening)))

    @property
    def distance(self) -> float:
        """The longest way of a joint, in rad."""
        return max(abs(there - here) for here, there in zip(self.start[0], self.goal[0], strict=True))

    @property
    def seconds(self) -> float:
        """The shortest time of joints and gripper."""
        return max(seconds_of(self.distance), abs(self.goal[1] - self.start[1]) / GRIPPER_SPEED)

    def drive(self, fraction: float) -> None:
        """Set the drive targets after this fraction of the time, from 0 to 1."""
        if fraction >= 1:
            self.arm.drive(*self.goal)
            return
        share = share_at(self.distance, fraction)
        joints = [here + share * (there - here) for here, there in zip(self.start[0], self.goal[0], strict=True)]
        self.arm.drive(joints, self.start[1] + fraction * (self.goal[1] - self.start[1]))


def travel(scene: Scene, ways: Sequence[Way]) -> int:
    """Move the arms to their goals, and let the time pass. Returns the number of steps of the physics."""
    steps = max(LEAST_STEPS, math.ceil(max(way.seconds for way in ways) * PHYSICS_HZ - _ROUNDING))
    for step in range(1, steps + 1):
        for way in ways:
            way.drive(step / steps)
        scene.advance(1, substeps=1)
    return steps
