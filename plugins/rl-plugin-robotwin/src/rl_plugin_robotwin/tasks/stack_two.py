"""Stack two: put the green block on the red one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_plugin_robotwin.tasks.instructions import ARMS, Phrases, block
from rl_plugin_robotwin.tasks.layout import GREEN, HALF, RED, Layout, cube
from rl_plugin_robotwin.tasks.plan import Look, Plan, pick, place, side_of
from rl_plugin_robotwin.tasks.state import Measured, within

TOLERANCE = (0.025, 0.025, 0.012)
"""Largest differences of the green block from its place, in metres (RoboTwin 2.0, stack_blocks_two)."""


class StackTwo:
    """The green block is on the red one, and both grippers are open."""

    name: ClassVar[str] = "stack_two"
    step_limit: ClassVar[int] = 150
    templates: ClassVar[Phrases] = Phrases(
        seen=(
            "put {A} on {B}",
            "stack {A} on top of {B}",
            "use {a} to place {A} on {B}",
            "pick up {A} and set it on {B}",
            "with {a}, stack {A} on {B}",
            "build a tower: {B} below, {A} on top",
            "lift {A} and lay it on {B}",
            "grasp {A} with {a} and release it on {B}",
        ),
        unseen=(
            "make a pile with {A} above {B}",
            "let {A} rest upon {B}",
            "{B} stays; {A} goes onto it with {a}",
        ),
    )

    def layout(self, generator: np.random.Generator) -> Layout:
        """The red block near the middle, the green one on either side."""
        red = generator.uniform((-0.04, -0.06), (0.04, 0.04))
        green = generator.uniform((0.13, -0.10), (0.26, 0.08)) * (1 - 2 * int(generator.integers(2)), 1)
        yaw_red, yaw_green = generator.uniform(-0.4, 0.4, 2)
        return Layout(boxes=(cube("red", RED, red, yaw_red), cube("green", GREEN, green, yaw_green)))

    def phrases(self, layout: Layout) -> dict[str, Phrases]:
        """Names of the blocks, and of the arm on the side of the green one."""
        return {"A": block("green"), "B": block("red"), "a": ARMS[side_of(np.array(layout.box("green").position))]}

    def success(self, measured: Measured, layout: Layout) -> bool:
        """The green block is one edge above the red one, within `TOLERANCE`, and released."""
        wanted = measured.bodies["red"].position + np.array([0.0, 0.0, 2 * HALF])
        return measured.released and within(measured.bodies["green"].position, wanted, TOLERANCE)

    def plan(self, layout: Layout, look: Look) -> Plan:
        """Pick the green block with the arm on its side, and place it."""
        side = side_of(look().bodies["green"].position)
        yield from pick(side, look, "green")
        target = look().bodies["red"].position + np.array([0.0, 0.0, 2 * HALF])
        yield from place(side, look, "green", target)
