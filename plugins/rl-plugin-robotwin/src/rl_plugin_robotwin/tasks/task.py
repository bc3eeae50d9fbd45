"""What a bundled task is."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import numpy as np

from rl_plugin_robotwin.tasks.instructions import Phrases, Split, fill
from rl_plugin_robotwin.tasks.layout import Layout
from rl_plugin_robotwin.tasks.plan import Look, Plan
from rl_plugin_robotwin.tasks.state import SIDES, Array, Measured


class BundledTask(Protocol):
    """A task: where things are, what to do, whether it is done, and how an expert does it.

    Tasks are pure: they draw a `Layout` and decide on a `Measured` state. Environments build the scene.
    """

    name: ClassVar[str]
    step_limit: ClassVar[int]
    """Control periods of an episode, at most."""
    templates: ClassVar[Phrases]
    """Instructions with slots."""

    def layout(self, generator: np.random.Generator) -> Layout:
        """Draw where the boxes are."""
        ...

    def phrases(self, layout: Layout) -> dict[str, Phrases]:
        """What fills the slots of `templates`."""
        ...

    def success(self, measured: Measured, layout: Layout) -> bool:
        """Whether the task is done, as measured at the end of a control period."""
        ...

    def plan(self, layout: Layout, look: Look) -> Plan:
        """What the expert does."""
        ...


def instruction(task: BundledTask, layout: Layout, generator: np.random.Generator, *, split: Split = "seen") -> str:
    """Draw an instruction for an episode; `split` is ``seen`` or ``unseen``."""
    return fill(task.templates, task.phrases(layout), split=split, generator=generator)


def features(measured: Measured, layout: Layout) -> Array:
    """What policies without cameras see of blocks and targets.

    Returns:
        (F,) for each block its position, its yaw as the sine and cosine of four times the angle (a cube looks the same
        every quarter turn) and its tilt, then for each target and block its offset from both tools. Metres.
    """
    numbers: list[float] = []
    points: list[list[float]] = []
    for box in layout.boxes:
        if box.kind != "block":
            continue
        body = measured.bodies[box.name]
        points.append(body.position.tolist())
        w, x, y, z = body.rotation.tolist()
        yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        numbers += [*points[-1], math.sin(4 * yaw), math.cos(4 * yaw), 2 * (x * z + w * y), 2 * (y * z - w * x)]
    points += [layout.targets[name].tolist() for name in sorted(layout.targets)]
    for side in SIDES:
        right, ahead, up = measured.tools[side].position.tolist()
        for x, y, z in points:
            numbers += [x - right, y - ahead, z - up]
    return np.array(numbers)
