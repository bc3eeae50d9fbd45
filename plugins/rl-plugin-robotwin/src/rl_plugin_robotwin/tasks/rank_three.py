"""Rank three: put a red, a green and a blue block in a row, from left to right."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import numpy as np

from rl_plugin_robotwin.tasks.instructions import Phrases, block
from rl_plugin_robotwin.tasks.layout import BLUE, GREEN, HALF, RED, Layout, cube, scatter
from rl_plugin_robotwin.tasks.plan import Look, Plan, pick, place, side_of
from rl_plugin_robotwin.tasks.state import SIDES, Array, Measured

ORDER = ("red", "green", "blue")
NEIGHBOURS = (0.13, 0.03)
"""Largest differences of neighbours in x and y, in metres (RoboTwin 2.0, blocks_ranking_rgb)."""
PLACES: Mapping[str, float] = {"red": -0.09, "green": 0.0, "blue": 0.09}
"""x of the places where the expert puts them."""
ROW = -0.06
"""y of the places, in metres."""


class RankThree:
    """Red, green and blue from left to right in a row, and both grippers open."""

    name: ClassVar[str] = "rank_three"
    step_limit: ClassVar[int] = 450
    templates: ClassVar[Phrases] = Phrases(
        seen=(
            "arrange {A}, {B} and {C} in a row from left to right",
            "put {A} left of {B} and {B} left of {C}",
            "line up the blocks: {A}, {B}, {C}",
            "sort the blocks into a row: {A} first, then {B}, then {C}",
            "make a row with {A}, {B} and {C}",
            "place {A}, {B}, {C} side by side in this order",
            "order the blocks from left to right as {A}, {B}, {C}",
            "set {A} on the left, {B} in the middle and {C} on the right",
        ),
        unseen=(
            "form a line that starts with {A}, goes on with {B} and ends with {C}",
            "rank the blocks: {A}, next {B}, last {C}",
            "from left to right I want {A}, {B} and {C}",
        ),
    )

    def layout(self, generator: np.random.Generator) -> Layout:
        """Three blocks anywhere behind the row."""
        low, high = (-0.26, 0.03), (0.26, 0.12)
        places = scatter(generator, 3, low=low, high=high, apart=0.1, allowed=lambda xy: abs(xy[0]) > 0.05)
        yaws = generator.uniform(-0.4, 0.4, 3)
        colours = dict(zip(ORDER, (RED, GREEN, BLUE), strict=True))
        return Layout(
            boxes=tuple(cube(name, colours[name], xy, yaw) for name, xy, yaw in zip(ORDER, places, yaws, strict=True))
        )

    def phrases(self, layout: Layout) -> dict[str, Phrases]:
        """Names of the blocks."""
        return {slot: block(name) for slot, name in zip("ABC", ORDER, strict=True)}

    def success(self, measured: Measured, layout: Layout) -> bool:
        """Neighbours are in order and closer than `NEIGHBOURS`, all lie on the table, and none is held."""
        positions = [measured.bodies[name].position for name in ORDER]
        return measured.released and all(_in_order(left, right) for left, right in pairwise(positions))

    def plan(self, layout: Layout, look: Look) -> Plan:
        """Pick and place one block after the other, each with the arm on its side."""
        rest = {side: look().tools[side].position for side in SIDES}
        for name in ORDER:
            side = side_of(look().bodies[name].position)
            yield from pick(side, look, name, others=rest)
            yield from place(side, look, name, np.array([PLACES[name], ROW, HALF]))


def _in_order(left: Array, right: Array) -> bool:
    dx, dy, dz = right - left
    return bool(0 < dx < NEIGHBOURS[0] and abs(dy) < NEIGHBOURS[1] and abs(dz) < HALF)
