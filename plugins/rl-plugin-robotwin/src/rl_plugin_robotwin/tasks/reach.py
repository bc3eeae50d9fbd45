"""Reach: bring the tools of both arms to two targets in the air."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_plugin_robotwin.tasks.instructions import Phrases
from rl_plugin_robotwin.tasks.layout import BLUE, RED, Box, Layout
from rl_plugin_robotwin.tasks.plan import Aim, Look, Move, Plan
from rl_plugin_robotwin.tasks.state import SIDES, Measured

TOLERANCE = 0.03
"""Largest distance of a tool from its target, in metres."""


class Reach:
    """Both tools at their targets at the same time."""

    name: ClassVar[str] = "reach"
    step_limit: ClassVar[int] = 24
    templates: ClassVar[Phrases] = Phrases(
        seen=(
            "reach {A} with the left arm and {B} with the right arm",
            "touch {A} with the left gripper and {B} with the right one",
            "move the left arm to {A} and the right arm to {B}",
            "bring the left gripper to {A} and the right gripper to {B}",
            "point both arms at {A} and {B}",
            "put the left gripper at {A}; put the right gripper at {B}",
            "hold the left arm at {A} and the right arm at {B}",
            "go to {A} on the left and {B} on the right",
        ),
        unseen=(
            "let the left hand meet {A} and the right hand meet {B}",
            "both arms: go to {A} and {B} at once",
            "aim for {A} with the left hand and {B} with the right hand",
        ),
    )

    def layout(self, generator: np.random.Generator) -> Layout:
        """One target for each arm, on its side."""
        low, high = np.array([0.08, -0.10, 0.06]), np.array([0.28, 0.10, 0.24])
        left, right = generator.uniform(low, high), generator.uniform(low, high)
        left[0] = -left[0]
        boxes = tuple(
            Box(name=f"{side}_target", half_size=(0.012,) * 3, position=tuple(where), colour=colour, kind="marker")
            for side, where, colour in (("left", left, RED), ("right", right, BLUE))
        )
        return Layout(boxes=boxes, targets={"left": left, "right": right})

    def phrases(self, layout: Layout) -> dict[str, Phrases]:
        """Names of the targets."""
        kinds = Phrases(seen=("marker", "target"), unseen=("dot",))
        return {
            slot: Phrases(
                seen=tuple(f"the {colour} {kind}" for kind in kinds.seen),
                unseen=tuple(f"the {colour} {kind}" for kind in kinds.unseen),
            )
            for slot, colour in (("A", "red"), ("B", "blue"))
        }

    def success(self, measured: Measured, layout: Layout) -> bool:
        """Both tools are within `TOLERANCE` of their targets."""
        return all(
            bool(np.linalg.norm(measured.tools[side].position - layout.targets[side]) <= TOLERANCE) for side in SIDES
        )

    def plan(self, layout: Layout, look: Look) -> Plan:
        """Move both arms at once."""
        yield Move(left=Aim(position=layout.targets["left"]), right=Aim(position=layout.targets["right"]), settle=10)
