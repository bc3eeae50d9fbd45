"""What the numbers of an action mean. All modes are defined here, with the limits of the arms themselves.

Every action has the left arm's numbers first, then the right arm's, each with the gripper last:

=============  ==================================================  =======
Mode           Numbers of one arm                                  Actions
=============  ==================================================  =======
`qpos`         six joint positions (rad), opening 0 to 1           14
`delta_qpos`   six changes of joints, change of the opening        14
`ee`           x, y, z (m), quaternion w, x, y, z, opening 0 to 1  16
`delta_ee`     changes of x, y, z, rotation vector, opening        14
=============  ==================================================  =======

Changes are from -1 to 1 and scaled by `Scales`; they count from the present drive targets. Poses are those of the
tool, in the world. One step drives the arms towards the result for one control period, at most as fast as
`arms.JOINT_SPEED` and `arms.GRIPPER_SPEED` allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from rlcore.config.schema import Table
from rlcore.errors import UserError

from rl_plugin_robotwin.simulation.kinematics import FORE, HIGH, JOINTS, LOW, SHOULDER, TOOL, UPPER
from rl_plugin_robotwin.simulation.rotations import Array, matrix_of, matrix_of_vector, quaternion_of
from rl_plugin_robotwin.tasks.state import SIDES, Side

Mode: TypeAlias = Literal["qpos", "delta_qpos", "ee", "delta_ee"]

REACH = UPPER + FORE + TOOL
"""Largest distance of the tool from the shoulder, in metres."""
TOLERANCE = 1e-4
"""Actions may exceed their limits by this much, as float32 arithmetic does. They are then clipped."""
WIDTH: Mapping[Mode, int] = {"qpos": 7, "delta_qpos": 7, "ee": 8, "delta_ee": 7}
"""Numbers of one arm."""
_SMALLEST_QUATERNION = 1e-3
_LOW, _HIGH = LOW.tolist(), HIGH.tolist()


class Scales(Table):
    """``[environment.scales]``: what a change of 1 means, for one control period."""

    joints: Annotated[float, Field(gt=0, le=0.15)] = 0.1
    """Radians of a joint."""
    position: Annotated[float, Field(gt=0, le=0.1)] = 0.03
    """Metres of the tool."""
    rotation: Annotated[float, Field(gt=0, le=0.5)] = 0.15
    """Radians of the tool."""
    opening: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Part of the opening of the gripper."""


def limits(mode: Mode, bases: Mapping[Side, tuple[float, float, float]]) -> tuple[NDArray[np.float32], ...]:
    """The lowest and the highest action, float32 (A,) each.

    Args:
        mode: how actions are meant.
        bases: world positions of the arms' bases.
    """
    lows: list[Array] = []
    highs: list[Array] = []
    for side in SIDES:
        if mode == "qpos":
            lows.append(np.append(LOW, 0.0))
            highs.append(np.append(HIGH, 1.0))
        elif mode == "ee":
            shoulder = np.add(bases[side], (0.0, 0.0, SHOULDER))
            lows.append(np.concatenate([shoulder - REACH, -np.ones(4), [0.0]]))
            highs.append(np.concatenate([shoulder + REACH, np.ones(4), [1.0]]))
        else:
            lows.append(-np.ones(WIDTH[mode]))
            highs.append(np.ones(WIDTH[mode]))
    return np.concatenate(lows).astype(np.float32), np.concatenate(highs).astype(np.float32)


def checked(action: object, low: Sequence[float], high: Sequence[float], mode: Mode) -> list[float]:
    """The numbers of an action, within their limits.

    Raises:
        UserError: it has the wrong size, is not finite, or exceeds its limits by more than `TOLERANCE`.
    """
    try:
        array = np.asarray(action, dtype=float)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.shape != (len(low),):
        raise _refusal(mode, f"an action of shape {array.shape}")
    numbers: list[float] = array.tolist()
    for index, (least, number, most) in enumerate(zip(low, numbers, high, strict=True)):
        if least <= number <= most:
            continue
        if not math.isfinite(number):
            raise _refusal(mode, f"{number} at index {index} ({label(mode, index)})")
        if not least - TOLERANCE <= number <= most + TOLERANCE:
            limit = f"outside of {least:.6g} to {most:.6g}"
            raise _refusal(mode, f"{number:.6g} at index {index} ({label(mode, index)}), {limit}")
        numbers[index] = min(most, max(least, number))
    return numbers


def label(mode: Mode, index: int) -> str:
    """What the number at an index of an action is: ``left joint 1``."""
    side, place = SIDES[index // WIDTH[mode]], index % WIDTH[mode]
    names = {
        "ee": ("x", "y", "z", "qw", "qx", "qy", "qz"),
        "delta_ee": ("x", "y", "z", "rotation x", "rotation y", "rotation z"),
    }.get(mode, tuple(f"joint {number}" for number in range(1, JOINTS + 1)))
    return f"{side} {names[place] if place < len(names) else 'gripper'}"


def goal(mode: Mode, scales: Scales, part: list[float], arm: Any) -> tuple[Sequence[float] | Array | None, float]:
    """Where one arm is to go.

    Args:
        mode: how the action is meant.
        scales: what changes of 1 mean.
        part: the arm's numbers of the action.
        arm: the `arms.Arm`.

    Returns:
        Joint positions (6,) in radians, or None if the pose is out of reach, and the opening from 0 to 1.
    """
    last = part[-1]
    if mode == "qpos":
        return part[:-1], last
    if mode == "ee":
        quaternion = np.array(part[3:7])
        norm = float(np.linalg.norm(quaternion))
        if norm < _SMALLEST_QUATERNION:
            return None, last
        return arm.solve(np.array(part[:3]), matrix_of(quaternion / norm)), last
    opening = min(1.0, max(0.0, arm.target_opening + scales.opening * last))
    if mode == "delta_qpos":
        moved = zip(arm.target_joints, part, _LOW, _HIGH, strict=False)
        return [min(most, max(least, at + scales.joints * by)) for at, by, least, most in moved], opening
    if not any(part[:-1]):
        return arm.target_joints, opening
    position, rotation = arm.target_pose()
    change = np.array(part[:-1])
    turned = matrix_of_vector(scales.rotation * change[3:]) @ rotation
    return arm.solve(position + scales.position * change[:3], turned), opening


def executed(
    mode: Mode, scales: Scales, part: list[float], arm: Any, before: tuple[list[float], float], *, planned: bool
) -> list[float]:
    """The action of one arm that leads to its present drive targets, where the limits of speed allow that.

    Args:
        mode: how the action is meant.
        scales: what changes of 1 mean.
        part: the arm's numbers of the action.
        arm: the `arms.Arm`, after its targets moved.
        before: its targets before they moved: joints and opening.
        planned: whether the pose was within reach.
    """
    joints, opening = before
    if mode == "qpos":
        return [*arm.target_joints, arm.target_opening]
    if mode == "ee":
        if planned:
            return [*part[:-1], arm.target_opening]
        position, rotation = arm.target_pose()
        return [*position.tolist(), *quaternion_of(rotation).tolist(), arm.target_opening]
    change = (arm.target_opening - opening) / scales.opening
    if mode == "delta_qpos":
        moved = zip(arm.target_joints, joints, strict=True)
        return [*((there - here) / scales.joints for there, here in moved), change]
    return [*(part[:-1] if planned else [0.0] * 6), change]


def _refusal(mode: Mode, found: str) -> UserError:
    return UserError(
        f"the mode {mode} needs {2 * WIDTH[mode]} finite numbers within the limits of the action space",
        found=found,
        where="the action of a step",
        fix="clip actions to action_space, for example with gymnasium.wrappers.ClipAction",
    )
