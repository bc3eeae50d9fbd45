"""The physics of the scene: drives, grasps, boxes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from rl_plugin_robotwin.simulation.arms import GRIPPER_SPEED, JOINT_SPEED, Arm
from rl_plugin_robotwin.simulation.randomisation import Variation
from rl_plugin_robotwin.simulation.rotations import downward, matrix_of
from rl_plugin_robotwin.simulation.scene import CONTROL_HZ, Scene
from rl_plugin_robotwin.tasks.layout import Box

HALF = (0.025, 0.025, 0.025)


def move(scene: Scene, arm: Arm, position: tuple[float, float, float], opening: float, periods: int) -> None:
    joints = arm.solve(np.array(position), downward(0.0))
    assert joints is not None
    for _ in range(periods):
        arm.approach(joints, opening, 1 / CONTROL_HZ)
        scene.advance()


def test_tools_reach_their_targets_at_limited_speed() -> None:
    scene = Scene()
    arm = scene.arms["right"]
    before = arm.targets
    joints = arm.solve(np.array([0.1, 0.05, 0.1]), downward(0.3))
    assert joints is not None
    arm.approach(joints, 0.0, 1 / CONTROL_HZ)
    assert np.abs(arm.targets - before).max() == pytest.approx(JOINT_SPEED / CONTROL_HZ)
    assert arm.target_opening == pytest.approx(1 - GRIPPER_SPEED / CONTROL_HZ)
    assert arm.positions()[:6] == pytest.approx(before, abs=1e-4)  # measured, not commanded
    for _ in range(40):
        arm.approach(joints, 0.0, 1 / CONTROL_HZ)
        scene.advance()
    position, rotation = arm.pose
    assert position == pytest.approx([0.1, 0.05, 0.1], abs=2e-3)
    assert matrix_of(rotation) == pytest.approx(matrix_of(downward(0.3)), abs=0.01)
    assert arm.opening == pytest.approx(0, abs=0.01)
    assert arm.target_pose()[0] == pytest.approx([0.1, 0.05, 0.1], abs=1e-5)


def test_a_grasped_box_stays_in_the_gripper() -> None:
    scene = Scene()
    box, arm = scene.add_box("box", HALF, (-0.2, -0.05, 0.025), (1, 0, 0)), scene.arms["left"]
    move(scene, arm, (-0.2, -0.05, 0.10), 1.0, 12)
    move(scene, arm, (-0.2, -0.05, 0.025), 1.0, 10)
    move(scene, arm, (-0.2, -0.05, 0.025), 0.0, 8)
    assert 0.5 < arm.opening < 0.6  # the width of the box, although the target is closed
    assert arm.target_opening == 0
    move(scene, arm, (-0.2, -0.05, 0.20), 0.0, 15)
    held = box.position - arm.pose[0]
    move(scene, arm, (0.02, 0.08, 0.20), 0.0, 20)
    scene.advance(40)
    assert box.position - arm.pose[0] == pytest.approx(held, abs=0.003)
    assert box.position[2] > 0.15
    move(scene, arm, (0.02, 0.08, 0.03), 0.0, 15)
    move(scene, arm, (0.02, 0.08, 0.03), 1.0, 10)
    move(scene, arm, (0.02, 0.08, 0.20), 1.0, 15)
    assert box.position == pytest.approx([0.02, 0.08, 0.025], abs=0.01)


def test_boxes_fall_pads_stay_and_markers_are_passed_through() -> None:
    scene = Scene(variation=Variation(table_drop=0.02))
    for kind, x in (("block", -0.1), ("pad", 0.0), ("marker", 0.1)):
        scene.add(Box(name=kind, half_size=HALF, position=(x, 0.0, 0.1), kind=kind))  # type: ignore[arg-type]
    scene.add(Box(name="through", half_size=(0.01,) * 3, position=(0.1, 0.0, 0.2)))
    scene.advance(20)
    measured = scene.measured().bodies
    assert measured["block"].position == pytest.approx([-0.1, 0, 0.025], abs=1e-3)
    assert measured["pad"].position == pytest.approx([0, 0, 0.1], abs=1e-6)
    assert measured["marker"].position == pytest.approx([0.1, 0, 0.1], abs=1e-6)
    assert measured["through"].position[2] == pytest.approx(0.01, abs=1e-3)
    assert scene.actors["block"].position[2] == pytest.approx(0.005, abs=1e-3)
    assert scene.actors["block"].velocity == pytest.approx(np.zeros(6), abs=1e-2)
    with pytest.raises(ValueError, match="already has a box"):
        scene.add_box("pad", HALF, (0, 0, 1), (1, 1, 1))
