"""Rotations, and forward and inverse kinematics."""

from __future__ import annotations

import numpy as np
import pytest
from rl_plugin_robotwin.simulation.kinematics import FORE, HIGH, LOW, SHOULDER, TOOL, UPPER, forward, inverse
from rl_plugin_robotwin.simulation.rotations import downward, matrix_of, matrix_of_vector, quaternion_of


def test_quaternions_survive_matrices_and_vectors_rotate() -> None:
    rng = np.random.default_rng(0)
    for quaternion in rng.normal(size=(50, 4)):
        unit = quaternion / np.linalg.norm(quaternion)
        assert abs(quaternion_of(matrix_of(unit)) @ unit) == pytest.approx(1)
    assert matrix_of_vector(np.array([0, 0, np.pi / 2])) @ [1, 0, 0] == pytest.approx([0, 1, 0])
    assert matrix_of_vector(np.zeros(3)) == pytest.approx(np.eye(3))


@pytest.mark.parametrize("yaw", [-1.2, 0.0, 0.7])
def test_downward_tools_point_down_and_turn_around_the_vertical(yaw: float) -> None:
    matrix = matrix_of(downward(yaw))
    assert matrix[:, 0] == pytest.approx([0, 0, -1])
    assert matrix[:, 1] == pytest.approx([-np.sin(yaw), np.cos(yaw), 0])


def test_the_stretched_arm_points_forward() -> None:
    position, rotation = forward(np.zeros(6))
    assert position == pytest.approx([UPPER + FORE + TOOL, 0, SHOULDER])
    assert rotation == pytest.approx(np.eye(3))


def test_inverse_kinematics_return_the_pose_and_nothing_out_of_reach() -> None:
    rng = np.random.default_rng(1)
    solved = 0
    for joints in rng.uniform(LOW, HIGH, (500, 6)):
        position, rotation = forward(joints)
        found = inverse(position, rotation, joints)
        if found is None:  # the elbow or the base is turned the other way
            continue
        solved += 1
        again, turned = forward(found)
        assert again == pytest.approx(position, abs=1e-6)
        assert turned == pytest.approx(rotation, abs=1e-6)
        assert (found >= LOW).all()
        assert (found <= HIGH).all()
    assert solved > 450
    assert inverse(np.array([1.2, 0, 0.2]), np.eye(3), np.zeros(6)) is None
    assert inverse(np.array([TOOL, 0, 0.5]), np.eye(3), np.zeros(6)) is None


def test_inverse_kinematics_stay_near_the_present_joints() -> None:
    joints = np.array([0.3, -1.2, 1.9, 0.4, 0.9, -0.7])
    position, rotation = forward(joints)
    assert inverse(position, rotation, joints) == pytest.approx(joints, abs=1e-6)
    turned = np.append(joints[:3], [joints[3] - np.pi, -joints[4], joints[5] + np.pi])
    other = inverse(position, rotation, turned)
    assert other == pytest.approx(turned, abs=1e-6)
