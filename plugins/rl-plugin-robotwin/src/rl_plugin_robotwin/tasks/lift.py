"""Lift: raise a long bar with both arms, and keep it level."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_plugin_robotwin.tasks.instructions import Phrases
from rl_plugin_robotwin.tasks.layout import YELLOW, Box, Layout
from rl_plugin_robotwin.tasks.plan import SHUT, WIDE, Aim, Look, Move, Plan, above
from rl_plugin_robotwin.tasks.state import Array, Body, Measured

HALF_LENGTH, HALF_WIDTH = 0.17, 0.02
HANDLE = 0.14
"""Distance of the handles from the centre, in metres."""
HEIGHT = 0.10
"""Smallest height of the centre above the table."""
NEAR = 0.03
"""Largest distance of a tool from its handle."""
LEVEL = 0.2
"""Largest vertical component of the bar's direction (about 11 degrees)."""


class Lift:
    """The bar is high, level, and held at both ends."""

    name: ClassVar[str] = "lift"
    step_limit: ClassVar[int] = 150
    templates: ClassVar[Phrases] = Phrases(
        seen=(
            "lift {A} with both arms",
            "raise {A} with both grippers and keep it level",
            "grasp {A} at both ends and lift it",
            "pick up {A} with {a} and {b} together",
            "use both arms to lift {A} off the table",
            "take {A} at its two ends and raise it",
            "hold {A} with both grippers above the table",
            "with {a} and {b}, lift {A} evenly",
        ),
        unseen=(
            "hoist {A} using two hands",
            "get {A} off the table without tilting it, one hand at each end",
            "carry {A} upwards with {a} and {b}",
        ),
    )

    def layout(self, generator: np.random.Generator) -> Layout:
        """A bar across the table, nearly parallel to its edge."""
        x, y, yaw = generator.uniform((-0.06, -0.08, -0.2), (0.06, 0.06, 0.2))
        bar = Box(
            name="bar",
            half_size=(HALF_LENGTH, HALF_WIDTH, HALF_WIDTH),
            position=(float(x), float(y), HALF_WIDTH),
            yaw=float(yaw),
            colour=YELLOW,
        )
        return Layout(boxes=(bar,))

    def phrases(self, layout: Layout) -> dict[str, Phrases]:
        """Names of the bar and the arms."""
        bar = Phrases(seen=("the yellow bar", "the long bar", "the bar"), unseen=("the yellow beam", "the long block"))
        left = Phrases(seen=("the left arm", "the left gripper"), unseen=("the left hand",))
        right = Phrases(seen=("the right arm", "the right gripper"), unseen=("the right hand",))
        return {"A": bar, "a": left, "b": right}

    def success(self, measured: Measured, layout: Layout) -> bool:
        """The centre is `HEIGHT` high, the bar is level, and each tool is at its handle."""
        bar = measured.bodies["bar"]
        left, right = handles(bar)
        direction = (right - left) / np.linalg.norm(right - left)
        tools = measured.tools
        held = all(
            bool(np.linalg.norm(tool.position - handle) <= NEAR)
            for tool, handle in ((tools["left"], left), (tools["right"], right))
        )
        return held and bool(bar.position[2] >= HEIGHT and abs(direction[2]) <= LEVEL)

    def plan(self, layout: Layout, look: Look) -> Plan:
        """Grasp both ends, and raise both arms together."""
        bar = look().bodies["bar"]
        left, right = handles(bar)
        yield _both(above(left), above(right), bar.yaw, WIDE)
        yield _both(left, right, bar.yaw, WIDE, settle=2)
        yield _both(left, right, bar.yaw, SHUT, settle=6)
        yield _both(above(left, HEIGHT + 0.05), above(right, HEIGHT + 0.05), bar.yaw, SHUT, settle=8)


def handles(bar: Body) -> tuple[Array, Array]:
    """(3,) and (3,) the places to hold the bar: left and right."""
    w, x, y, z = bar.rotation
    along = np.array([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])
    along = along if along[0] >= 0 else -along
    return bar.position - HANDLE * along, bar.position + HANDLE * along


def _both(left: Array, right: Array, yaw: float, opening: float, settle: int = 0) -> Move:
    return Move(
        left=Aim(position=left, yaw=yaw, opening=opening),
        right=Aim(position=right, yaw=yaw, opening=opening),
        settle=settle,
    )
