"""Actions of AITW as gestures, in the form that the official matching compares.

Axes: N pairs of actions; 2 is ``(y, x)``, relative to the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from rlcore_gui.actions import Action
from rlcore_gui.steps import GuiStep

from rl_plugin_aitw.actions import CLICK, COMPLETE, IMPOSSIBLE, PRESS_BACK, PRESS_ENTER, PRESS_HOME, TYPE

Floats = npt.NDArray[np.float32]
TAP_DISTANCE = 0.04
"""A gesture whose touch and lift are at most this far apart is a tap."""
DUAL_POINT = 4
NO_TYPE = -1
"""The type of an answer without a readable action, which matches nothing."""
TYPE_IDS = {
    TYPE: 3,
    CLICK: DUAL_POINT,
    "SCROLL UP": DUAL_POINT,
    "SCROLL DOWN": DUAL_POINT,
    "SCROLL LEFT": DUAL_POINT,
    "SCROLL RIGHT": DUAL_POINT,
    PRESS_BACK: 5,
    PRESS_HOME: 6,
    PRESS_ENTER: 7,
    COMPLETE: 10,
    IMPOSSIBLE: 11,
}
"""The official type id of each action."""
Row = tuple[float, float, float, float]
"""``(y, x)`` of the touch, then of the lift."""
_NOWHERE: Row = (-1.0, -1.0, -1.0, -1.0)
_SCROLLS: dict[str, Row] = {
    "SCROLL DOWN": (0.8, 0.5, 0.2, 0.5),
    "SCROLL UP": (0.2, 0.5, 0.8, 0.5),
    "SCROLL LEFT": (0.5, 0.2, 0.5, 0.8),
    "SCROLL RIGHT": (0.5, 0.8, 0.5, 0.2),
}
"""The finger moves against the direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gestures:
    """N actions as arrays."""

    types_N: npt.NDArray[np.int64]
    touches_N2: Floats
    lifts_N2: Floats

    def __len__(self) -> int:
        return len(self.types_N)

    def __getitem__(self, chosen: Any) -> Gestures:
        """The gestures that an index array or mask selects."""
        touches, lifts = self.touches_N2[chosen], self.lifts_N2[chosen]
        return Gestures(types_N=self.types_N[chosen], touches_N2=touches, lifts_N2=lifts)

    @property
    def taps_N(self) -> npt.NDArray[np.bool_]:
        """Whether each gesture is a tap. Actions without a gesture count as taps."""
        across_N2 = self.touches_N2 - self.lifts_N2
        taps_N: npt.NDArray[np.bool_] = np.linalg.norm(across_N2, axis=-1) <= np.float32(TAP_DISTANCE)
        return taps_N


def predicted_gestures(actions: Sequence[Action | None]) -> Gestures:
    """The gestures of predicted actions. None stands for an answer without a readable action."""
    types = [NO_TYPE if action is None else TYPE_IDS[action.name] for action in actions]
    return _gestures(types, [_NOWHERE if action is None else _row(action) for action in actions])


def reference_gestures(steps: Sequence[GuiStep]) -> Gestures:
    """The gestures of recorded actions. A click has its recorded ``touch`` and ``lift``, both ``(x, y)``.

    A click without them, or whose touch and lift are not near each other, is a tap at its position. The official
    evaluation treats the latter as a drag, which no click can match.
    """
    gestures = recorded_gestures(steps)
    drags_K = [index for index in np.flatnonzero(~gestures.taps_N) if steps[index].action.name == CLICK]
    if drags_K:
        labelled = predicted_gestures([steps[index].action for index in drags_K])
        gestures.touches_N2[drags_K], gestures.lifts_N2[drags_K] = labelled.touches_N2, labelled.lifts_N2
    return gestures


def recorded_gestures(steps: Sequence[GuiStep]) -> Gestures:
    """As `reference_gestures`, but a click whose touch and lift are not near each other is a drag."""
    types = [TYPE_IDS[step.action.name] for step in steps]
    return _gestures(types, [_recorded_row(step) for step in steps])


def _row(action: Action) -> Row:
    if action.position is not None:
        x, y = action.position
        return y, x, y, x
    return _SCROLLS.get(action.name, _NOWHERE)


def _recorded_row(step: GuiStep) -> Row:
    if step.action.name == CLICK:
        touch, lift = step.source.get("touch"), step.source.get("lift")
        if touch is not None and lift is not None:
            return touch[1], touch[0], lift[1], lift[0]
    return _row(step.action)


def _gestures(types: Sequence[int], rows: Sequence[Row]) -> Gestures:
    ends_N4 = np.fromiter(chain.from_iterable(rows), np.float32, count=4 * len(rows)).reshape(-1, 4)
    types_N = np.fromiter(types, np.int64, count=len(types))
    return Gestures(types_N=types_N, touches_N2=ends_N4[:, :2], lifts_N2=ends_N4[:, 2:])
