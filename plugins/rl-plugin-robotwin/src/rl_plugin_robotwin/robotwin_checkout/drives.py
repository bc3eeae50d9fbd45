"""What moves the robots of a RoboTwin task in one physics step. A motion that is repeated with it is exact.

Actions are joint positions alone. RoboTwin's expert also sets the velocities of the drives, and begins each path at the
measured positions and not at the last targets. Where fingers graze an object, the positions alone may move it in
another way.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Drives:
    """The drives of all joints of a scene's robots.

    A row has the target (rad or m), the velocity (rad/s or m/s) and the force (N m or N) of each joint, and the
    commanded openings of the left and the right gripper from 0 to 1, from which RoboTwin judges its success.

    Args:
        robot: RoboTwin's robot
    """

    def __init__(self, robot: Any) -> None:
        self._robot = robot
        left, right = robot.left_entity, robot.right_entity
        self._arms = [left] if right is left else [left, right]
        self._joints = [joint for arm in self._arms for joint in arm.get_active_joints()]

    def read(self) -> Any:
        """The present row, float64."""
        targets = [joint.get_drive_target()[0] for joint in self._joints]
        velocities = [joint.get_drive_velocity_target()[0] for joint in self._joints]
        forces = [arm.get_qf() for arm in self._arms]
        openings = [self._robot.left_gripper_val, self._robot.right_gripper_val]
        return np.concatenate([targets, velocities, *forces, openings], dtype=np.float64)

    def write(self, row: Any) -> None:
        """Set all drives.

        Args:
            row: of `read`, in an equal scene
        """
        count = len(self._joints)
        targets, velocities, forces, openings = np.split(row, [count, 2 * count, 3 * count])
        for joint, target, velocity in zip(self._joints, targets, velocities, strict=True):
            joint.set_drive_target(target)
            joint.set_drive_velocity_target(velocity)
        first = 0
        for arm in self._arms:
            last = first + len(arm.get_active_joints())
            arm.set_qf(forces[first:last].astype(np.float32))
            first = last
        self._robot.left_gripper_val, self._robot.right_gripper_val = openings
