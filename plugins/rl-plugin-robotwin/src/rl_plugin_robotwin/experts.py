"""Scripted experts, which act only through the action space of the environment."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.simulation.control_modes import WIDTH, Mode, Scales
from rl_plugin_robotwin.simulation.rotations import downward, matrix_of, vector_of_matrix
from rl_plugin_robotwin.tasks.plan import Look, Move, Plan
from rl_plugin_robotwin.tasks.state import SIDES, Array, Side, Tool

SPEED = 0.025
"""Largest movement of a tool in a control period, in metres (0.5 m/s)."""
TURN = 0.15
"""Largest rotation in a control period, in radians."""
GRIP = 0.25
"""Largest change of the opening in a control period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Where the tool of one arm shall be. It points down."""

    position: Array
    """(3,) metres, in the frame of the table."""
    yaw: float
    """Radians, as `rl_plugin_robotwin.tasks.plan.Aim.yaw`."""
    opening: float
    """0 closed to 1 open."""


def follow(plan: Plan, look: Look) -> Iterator[Mapping[Side, Command]]:
    """Commands of both arms for one control period after another, until the plan ends.

    Tools move to their aims in straight lines, and both arms arrive at the same time.
    """
    commands = {side: _at(look().tools[side]) for side in SIDES}
    for move in plan:
        start = commands
        aims = {side: _aimed(move, side, start[side]) for side in SIDES}
        periods = max(_periods(start[side], aims[side]) for side in SIDES)
        for period in range(1, periods + 1):
            commands = {side: _between(start[side], aims[side], period / periods) for side in SIDES}
            yield commands
        for _ in range(move.settle):
            yield commands


def _at(tool: Tool) -> Command:
    w, x, y, z = (float(value) for value in tool.rotation)
    across = (2 * (x * y - w * z), 1 - 2 * (x * x + z * z))  # x and y of the direction in which the fingers close
    return Command(position=tool.position, yaw=math.atan2(-across[0], across[1]), opening=round(tool.opening))


def _aimed(move: Move, side: Side, now: Command) -> Command:
    aim = move.aim(side)
    return now if aim is None else Command(position=aim.position, yaw=aim.yaw, opening=aim.opening)


def _periods(start: Command, end: Command) -> int:
    distance = float(np.linalg.norm(end.position - start.position))
    needed = max(distance / SPEED, abs(end.yaw - start.yaw) / TURN, abs(end.opening - start.opening) / GRIP)
    return math.ceil(needed - 1e-6)


def _between(start: Command, end: Command, share: float) -> Command:
    return Command(
        position=start.position + share * (end.position - start.position),
        yaw=start.yaw + share * (end.yaw - start.yaw),
        opening=start.opening + share * (end.opening - start.opening),
    )


def encode(
    commands: Mapping[Side, Command], arms: Mapping[Side, Any], *, mode: Mode, scales: Scales, table_height: float
) -> NDArray[np.float32]:
    """The action that brings both tools nearest to their commands in one control period.

    A tool whose command is out of reach stays where it is.

    Args:
        commands: of both arms, in the frame of the table.
        arms: the `rl_plugin_robotwin.simulation.arms.Arm` of each side.
        mode: of the environment.
        scales: of the environment.
        table_height: world height of the table's top, in metres.

    Returns:
        (A,) float32, within the limits of the action space.
    """
    raised = np.array([0.0, 0.0, table_height])
    parts = [_part(commands[side], arms[side], raised, mode, scales) for side in SIDES]
    return np.concatenate(parts).astype(np.float32)


def _part(command: Command, arm: Any, raised: Array, mode: Mode, scales: Scales) -> Array:
    position, rotation = command.position + raised, downward(command.yaw)
    if mode == "ee":
        return np.concatenate([position, rotation, [command.opening]])
    opening = (command.opening - arm.target_opening) / scales.opening
    joints = arm.solve(position, rotation)
    if mode == "qpos":
        return np.append(arm.targets if joints is None else joints, command.opening)
    if joints is None:
        moved = np.zeros(WIDTH[mode] - 1)
    elif mode == "delta_qpos":
        moved = (joints - arm.targets) / scales.joints
    else:
        now, turned = arm.target_pose()
        turn = vector_of_matrix(matrix_of(rotation) @ turned.T)
        moved = np.concatenate([(position - now) / scales.position, turn / scales.rotation])
    return np.clip(np.append(moved, opening), -1.0, 1.0)


def expert_actions(environment: BimanualEnvironment) -> Iterator[NDArray[np.float32]]:
    """The actions of the expert for the episode that was just reset, in the environment's own action space.

    Each action depends on the scene at the time when it is asked for, so the caller takes a step with each before it
    asks for the next one. The plan may end before the episode does.

    Yields:
        (A,) float32 actions.
    """
    scene, config = environment.scene, environment.config
    plan = environment.task.plan(environment.layout, scene.measured)
    for commands in follow(plan, scene.measured):
        yield encode(commands, scene.arms, mode=config.control, scales=config.scales, table_height=scene.table_height)
