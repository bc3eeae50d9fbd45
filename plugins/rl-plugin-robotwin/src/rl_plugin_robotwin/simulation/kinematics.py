"""Forward and inverse kinematics of an arm, in closed form.

The arm has six revolute joints: a turn around the vertical, shoulder and elbow, and a wrist whose three axes meet in
one point. In its own frame, the arm points along x when all joints are zero, and z is up. Joint 1 turns around z,
joints 2, 3 and 5 around y, and joints 4 and 6 around x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rl_plugin_robotwin.simulation.rotations import Array

SHOULDER = 0.22
"""Height of the shoulder above the base, in metres."""
UPPER, FORE, TOOL = 0.40, 0.38, 0.15
"""Distances in metres: shoulder to elbow, elbow to wrist, wrist to the point between the fingers."""
LOW = np.array([-2.9, -2.4, 0.05, -3.1, -2.2, -3.1])
"""Smallest joint positions, in radians."""
HIGH = np.array([2.9, 0.9, 2.75, 3.1, 2.2, 3.1])
"""Largest joint positions, in radians."""
JOINTS = len(LOW)
_LOW, _HIGH = LOW.tolist(), HIGH.tolist()
_MARGIN = 1e-6


def forward(joints: Sequence[float] | Array) -> tuple[Array, Array]:
    """Where the tool is.

    Args:
        joints: six, in radians.

    Returns:
        The position of the point between the fingers (3,), in metres, and the rotation of the tool (3, 3), both in the
        arm's frame.
    """
    one, two, three, four, five, six = (float(value) for value in joints)
    c1, s1 = math.cos(one), math.sin(one)
    pitch = two + three
    cp, sp = math.cos(pitch), math.sin(pitch)
    c4, s4, c5, s5, c6, s6 = (f(angle) for angle in (four, five, six) for f in (math.cos, math.sin))
    fore = np.array([[c1 * cp, -s1, c1 * sp], [s1 * cp, c1, s1 * sp], [-sp, 0.0, cp]])
    wrist = np.array(
        [
            [c5, s5 * s6, s5 * c6],
            [s4 * s5, c4 * c6 - s4 * c5 * s6, -c4 * s6 - s4 * c5 * c6],
            [-c4 * s5, s4 * c6 + c4 * c5 * s6, -s4 * s6 + c4 * c5 * c6],
        ]
    )
    rotation: Array = fore @ wrist
    reach = UPPER * math.cos(two) + FORE * cp
    centre = np.array([c1 * reach, s1 * reach, SHOULDER - UPPER * math.sin(two) - FORE * sp])
    return centre + TOOL * rotation[:, 0], rotation


def inverse(position: Array, rotation: Array, near: Sequence[float] | Array) -> Array | None:
    """Joint positions that bring the tool to a pose, with the elbow up.

    Args:
        position: (3,) metres, in the arm's frame.
        rotation: (3, 3), in the arm's frame.
        near: six, in radians; of the two positions of the wrist, the one nearer to these is returned.

    Returns:
        (6,) radians, or None if the pose is out of reach.
    """
    x, y, z = (float(value) for value in position - TOOL * rotation[:, 0])
    z -= SHOULDER
    flat = math.hypot(x, y)
    if flat < 1e-6:
        return None
    bend = (flat * flat + z * z - UPPER * UPPER - FORE * FORE) / (2 * UPPER * FORE)
    if not -1 <= bend <= 1:
        return None
    one, three = math.atan2(y, x), math.acos(bend)
    two = -math.atan2(z, flat) - math.atan2(FORE * math.sin(three), UPPER + FORE * bend)
    c1, s1, cp, sp = math.cos(one), math.sin(one), math.cos(two + three), math.sin(two + three)
    fore = np.array([[c1 * cp, -s1, c1 * sp], [s1 * cp, c1, s1 * sp], [-sp, 0.0, cp]])
    wrist = fore.T @ rotation
    cosine = min(1.0, max(-1.0, float(wrist[0, 0])))
    five = math.acos(cosine)
    reference = [float(value) for value in near]
    if math.sin(five) < 1e-5:  # joints 4 and 6 turn around one axis
        turn = math.atan2(float(wrist[2, 1]), float(wrist[1, 1]))
        pairs = [(reference[3], five, turn - reference[3] if cosine > 0 else reference[3] - turn)]
    else:
        four = math.atan2(float(wrist[1, 0]), -float(wrist[2, 0]))
        six = math.atan2(float(wrist[0, 1]), float(wrist[0, 2]))
        pairs = [(four, five, six), (four + math.pi, -five, six + math.pi)]
    best, best_distance = None, math.inf
    for four, bent, six in pairs:
        joints = [one, two, three, _turned(four, 3, reference), bent, _turned(six, 5, reference)]
        if all(low - _MARGIN <= q <= high + _MARGIN for low, q, high in zip(_LOW, joints, _HIGH, strict=True)):
            distance = max(abs(q - r) for q, r in zip(joints, reference, strict=True))
            if distance < best_distance:
                best, best_distance = joints, distance
    return None if best is None else np.clip(best, LOW, HIGH)


def _turned(angle: float, joint: int, near: list[float]) -> float:
    """The angle plus full turns: the one within the joint's limits that is nearest to its present position."""
    nearest = angle + 2 * math.pi * round((near[joint] - angle) / (2 * math.pi))
    if nearest > _HIGH[joint]:
        return nearest - 2 * math.pi
    return nearest + 2 * math.pi if nearest < _LOW[joint] else nearest
