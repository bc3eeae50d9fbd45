"""Randomisation of the scene, under RoboTwin's key names, with disjoint looks for training and evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field
from rlcore.config.schema import Table

from rl_plugin_robotwin.tasks.instructions import Split
from rl_plugin_robotwin.tasks.layout import Box, Layout
from rl_plugin_robotwin.tasks.state import Array

CLUTTER = 10
"""Largest number of clutter objects, as in RoboTwin."""
PLAIN = (0.55, 0.53, 0.50)
"""Colour of a table that is not randomised."""
_CLUTTER_AREA = ((-0.40, -0.05), (0.40, 0.24))
_FREE = 0.16
"""Distance of clutter from blocks and targets, in metres."""


class RandomisationConfig(Table):
    """``[environment.domain_randomization]``: what differs between episodes besides the task. RoboTwin's key names."""

    random_background: bool = False
    """Draw the colours of table and wall. Training and evaluation on unseen looks use disjoint colours."""
    cluttered_table: bool = False
    """Put up to ten small objects on the table, away from the blocks and targets of the task."""
    clean_background_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the episodes that keep the plain background although `random_background` is set."""
    random_head_camera_dis: Annotated[float, Field(ge=0, le=0.2)] = 0.0
    """Largest displacement of the head camera on each axis, in metres."""
    random_table_height: Annotated[float, Field(ge=0, le=0.1)] = 0.0
    """Largest change of the table's height, downwards, in metres. The robot stays where it is."""
    random_light: bool = False
    """Draw the colours and directions of the lights."""
    crazy_random_light_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the episodes with `random_light` whose lights are strongly coloured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What was drawn for one episode."""

    table_colour: tuple[float, float, float] = PLAIN
    wall_colour: tuple[float, float, float] = (0.85, 0.85, 0.85)
    table_drop: float = 0.0
    """How much lower the table is, in metres."""
    camera_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Displacement of the head camera, in metres."""
    ambient: tuple[float, float, float] = (0.5, 0.5, 0.5)
    light_direction: tuple[float, float, float] = (0.0, 0.5, -1.0)
    light_colour: tuple[float, float, float] = (0.5, 0.5, 0.5)
    clutter: tuple[Box, ...] = ()


def vary(config: RandomisationConfig, layout: Layout, generator: np.random.Generator, *, split: Split) -> Variation:
    """Draw the variation of an episode.

    Every key draws from a generator of its own, so that changing one key does not change what another one draws.

    Args:
        config: what varies.
        layout: the boxes of the task, which clutter keeps away from.
        generator: the source of randomness. It advances equally for every configuration.
        split: ``seen`` looks for training, or ``unseen`` ones for evaluation.
    """
    background, clutter, camera, table, light = generator.spawn(5)
    plain = Variation()
    table_colour, wall_colour = plain.table_colour, plain.wall_colour
    if config.random_background and background.uniform() >= config.clean_background_rate:
        table_colour, wall_colour = (_colour(background, split) for _ in range(2))
    ambient, direction, shine = plain.ambient, plain.light_direction, plain.light_colour
    if config.random_light:
        crazy = light.uniform() < config.crazy_random_light_rate
        spread = 0.5 if crazy else 0.1
        ambient = _triple(light.uniform(0.5 - spread, 0.5 + spread, 3))
        shine = _triple(light.uniform(0.5 - spread, 0.5 + spread, 3))
        direction = _triple(np.append(light.uniform(-0.8, 0.8, 2), -1.0))
    reach = config.random_head_camera_dis
    return Variation(
        table_colour=table_colour,
        wall_colour=wall_colour,
        table_drop=float(table.uniform(0.0, config.random_table_height)),
        camera_offset=_triple(camera.uniform(-reach, reach, 3)),
        ambient=ambient,
        light_direction=direction,
        light_colour=shine,
        clutter=_clutter(layout, clutter, split) if config.cluttered_table else (),
    )


def is_seen(colour: tuple[float, float, float]) -> bool:
    """Whether a random colour belongs to the seen looks: hues alternate in sixths of the circle."""
    red, green, blue = colour
    hue = math.atan2(math.sqrt(3) * (green - blue), 2 * red - green - blue) % (2 * math.pi)
    return int(hue / (math.pi / 3)) % 2 == 0


def _colour(generator: np.random.Generator, split: Split) -> tuple[float, float, float]:
    while True:
        colour = _triple(generator.uniform(0.1, 0.9, 3))
        if is_seen(colour) == (split == "seen"):
            return colour


def _clutter(layout: Layout, generator: np.random.Generator, split: Split) -> tuple[Box, ...]:
    taken: list[Array] = [np.asarray(box.position)[:2] for box in layout.boxes]
    taken += [np.asarray(target)[:2] for target in layout.targets.values()]
    lengths = {id(box): max(box.half_size[:2]) for box in layout.boxes}
    radii = [lengths[id(box)] for box in layout.boxes] + [0.0] * len(layout.targets)
    boxes: list[Box] = []
    wanted = int(generator.integers(1, CLUTTER + 1))
    for _ in range(40 * wanted):
        xy = generator.uniform(*_CLUTTER_AREA)
        half = generator.uniform(0.012, 0.03, 3)
        free = all(np.linalg.norm(xy - other) > _FREE + radius for other, radius in zip(taken, radii, strict=True))
        apart = all(np.linalg.norm(xy - np.asarray(box.position)[:2]) > 0.09 for box in boxes)
        if free and apart:
            boxes.append(
                Box(
                    name=f"clutter_{len(boxes)}",
                    half_size=_triple(half),
                    position=(float(xy[0]), float(xy[1]), float(half[2])),
                    yaw=float(generator.uniform(-np.pi, np.pi)),
                    colour=_colour(generator, split),
                )
            )
        if len(boxes) == wanted:
            break
    return tuple(boxes)


def _triple(values: Array) -> tuple[float, float, float]:
    first, second, third = (float(value) for value in values)
    return first, second, third
