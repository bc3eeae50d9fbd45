"""Handover: the left arm passes a bar to the right arm, which puts it on a pad."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_plugin_robotwin.tasks.instructions import Phrases
from rl_plugin_robotwin.tasks.layout import BLUE, RED, Box, Layout
from rl_plugin_robotwin.tasks.plan import CLEAR, SHUT, Look, Plan, above, one_arm
from rl_plugin_robotwin.tasks.state import Measured, within

HALF_LENGTH, HALF_WIDTH = 0.11, 0.02
GRIP = 0.075
"""Distance of each arm's grasp from the centre of the bar, in metres."""
PAD = (0.05, 0.05, 0.002)
"""Half the edges of the pad, in metres."""
TOLERANCE = (0.03, 0.03, 0.01)
"""Largest differences of the bar from its place on the pad, in metres (RoboTwin 2.0, handover_block)."""
MIDDLE = np.array([0.0, -0.02, 0.16])
"""Where the bar is passed."""


class Handover:
    """The bar lies on the pad, and both grippers are open."""

    name: ClassVar[str] = "handover"
    step_limit: ClassVar[int] = 300
    templates: ClassVar[Phrases] = Phrases(
        seen=(
            "hand {A} from the left arm to the right arm and put it on {B}",
            "pass {A} from the left to the right gripper, then place it on {B}",
            "take {A} with the left arm, give it to the right arm, and lay it on {B}",
            "grasp {A} with the left gripper, hand it over, and set it on {B}",
            "move {A} onto {B}: the left arm gives, the right arm places",
            "let the left arm pass {A} to the right arm, which puts it on {B}",
            "transfer {A} from left to right and place it on {B}",
            "use both arms to bring {A} to {B}, with a handover",
        ),
        unseen=(
            "swap hands with {A} in the air and drop it off on {B}",
            "{A} travels from the left hand to the right hand and ends on {B}",
            "relay {A} to the right hand and rest it on {B}",
        ),
    )

    def layout(self, generator: np.random.Generator) -> Layout:
        """The bar on the left, out of the right arm's side, and the pad on the right."""
        x, y, yaw = generator.uniform((-0.22, -0.06, -0.15), (-0.16, 0.06, 0.15))
        pad_x, pad_y = generator.uniform((0.20, -0.06), (0.28, 0.06))
        bar = Box(
            name="bar",
            half_size=(HALF_LENGTH, HALF_WIDTH, HALF_WIDTH),
            position=(float(x), float(y), HALF_WIDTH),
            yaw=float(yaw),
            colour=RED,
        )
        pad = Box(name="pad", half_size=PAD, position=(float(pad_x), float(pad_y), PAD[2]), colour=BLUE, kind="pad")
        target = np.array([pad_x, pad_y, 2 * PAD[2] + HALF_WIDTH])
        return Layout(boxes=(bar, pad), targets={"pad": target})

    def phrases(self, layout: Layout) -> dict[str, Phrases]:
        """Names of the bar and the pad."""
        bar = Phrases(seen=("the red bar", "the bar", "the red stick"), unseen=("the red beam", "the crimson bar"))
        pad = Phrases(seen=("the blue pad", "the blue square"), unseen=("the blue mat",))
        return {"A": bar, "B": pad}

    def success(self, measured: Measured, layout: Layout) -> bool:
        """The bar's centre is on the pad's, within `TOLERANCE`, and released."""
        return measured.released and within(measured.bodies["bar"].position, layout.targets["pad"], TOLERANCE)

    def plan(self, layout: Layout, look: Look) -> Plan:
        """Left grasps and carries, right grasps, left lets go, right places."""
        bar = look().bodies["bar"]
        along = np.array([np.cos(bar.yaw), np.sin(bar.yaw), 0.0])
        grasp = bar.position - GRIP * along
        yield one_arm("left", above(grasp), yaw=bar.yaw)
        yield one_arm("left", grasp, yaw=bar.yaw, settle=2)
        yield one_arm("left", grasp, yaw=bar.yaw, opening=SHUT, settle=6)
        yield one_arm("left", above(grasp), yaw=bar.yaw, opening=SHUT)
        yield one_arm("left", MIDDLE - np.array([GRIP, 0.0, 0.0]), opening=SHUT, settle=4)
        measured = look()
        held = measured.bodies["bar"]
        along = np.array([np.cos(held.yaw), np.sin(held.yaw), 0.0])
        other = held.position + GRIP * along
        yield one_arm("right", above(other, 0.08), yaw=held.yaw)
        yield one_arm("right", other, yaw=held.yaw, settle=2)
        yield one_arm("right", other, yaw=held.yaw, opening=SHUT, settle=6)
        left = measured.tools["left"].position
        yield one_arm("left", left, yaw=held.yaw, settle=4)
        yield one_arm("left", above(left, 0.10))
        yield one_arm("left", above(left, 0.10) - np.array([0.15, 0.0, 0.0]))
        yield from _put_down(layout, look)


def _put_down(layout: Layout, look: Look) -> Plan:
    pad = layout.targets["pad"]
    measured = look()
    offset = measured.tools["right"].position - measured.bodies["bar"].position
    yield one_arm("right", above(pad + offset, CLEAR), opening=SHUT, settle=4)
    measured = look()
    offset = measured.tools["right"].position - measured.bodies["bar"].position
    yield one_arm("right", above(pad + offset, 0.03), opening=SHUT, settle=2)
    yield one_arm("right", above(pad + offset, 0.002), opening=SHUT, settle=3)
    yield one_arm("right", above(pad + offset, 0.002), settle=4)
    yield one_arm("right", above(pad + offset, CLEAR))
