"""The comparison of actions of Mind2Web (Deng et al., 2023, arXiv 2306.06070, section 4.1) as SeeClick computes it.

SeeClick (Cheng et al., 2024, arXiv 2401.10935) compares the words of two operations as they are. The program of
Mind2Web itself first drops words that are one punctuation mark, which `Match.plain_f1` does.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from rlcore_gui.actions import Action, Point
from rlcore_gui.steps import Box, GuiStep

from rl_plugin_mind2web.actions import CLICK, SELECT, TYPE

OPERATION_IDS = {SELECT: "2", TYPE: "3", CLICK: "4"}
"""The first token of each operation. Hovering and pressing enter are clicks."""
DECIMALS = 3
"""Decimals of the edges of a target. A predicted point is compared as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How a predicted action compares with the recorded one."""

    element: bool
    """Whether the point is in the box of the target."""
    operation_f1: float
    """F1 of the words of the operations, as SeeClick computes it."""
    plain_f1: float
    """The same without words that are one punctuation mark, as Mind2Web's own program computes it."""

    @property
    def step(self) -> bool:
        """Whether the step succeeds: the right element and exactly the right operation."""
        return self.element and self.operation_f1 == 1


def match(action: Action | None, step: GuiStep) -> Match:
    """Compare a predicted action with the recorded one. None stands for an answer without a readable action."""
    if action is None:
        return Match(element=False, operation_f1=0.0, plain_f1=0.0)
    texts = operation(action), operation(step.action)
    return Match(
        element=_in_a_box(action.position, step.boxes),
        operation_f1=token_f1(*texts),
        plain_f1=token_f1(*texts, ignored=string.punctuation),
    )


def operation(action: Action) -> str:
    """The operation as text: its id and, for typed texts and options, the value in lower case."""
    number = OPERATION_IDS[action.name]
    return number if action.name == CLICK else f"{number} {(action.value or '').lower()}"


def token_f1(one: str, other: str, *, ignored: str = "") -> float:
    """F1 of the sets of words of two texts, without words of one ignored character: 1 for two empty sets, 0 for one."""
    predicted, expected = set(one.split()) - set(ignored), set(other.split()) - set(ignored)
    if not predicted or not expected:
        return float(predicted == expected)
    common = len(predicted & expected)
    return 2 * common / (len(predicted) + len(expected))


def _in_a_box(point: Point | None, boxes: Sequence[Box]) -> bool:
    if point is None:
        return False
    x, y = point
    return any(
        round(left, DECIMALS) <= x <= round(left + width, DECIMALS)
        and round(top, DECIMALS) <= y <= round(top + height, DECIMALS)
        for top, left, height, width in boxes
    )
