"""Actions of AITW as gestures, in the form that the official matching compares.

Axes: N pairs of actions; 2 is ``(y, x)``, relative to the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rlcore_gui.actions import Action, Point
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
_NOWHERE = (-1.0, -1.0)
_NOTHING = (NO_TYPE, _NOWHERE, _NOWHERE)
_SCROLLS: dict[str, tuple[Point, Point]] = {
    "SCROLL DOWN": ((0.8, 0.5), (0.2, 0.5)),
    "SCROLL UP": ((0.2, 0.5), (0.8, 0.5)),
    "SCROLL LEFT": ((0.5, 0.2), (0.5, 0.8)),
    "SCROLL RIGHT": ((0.5, 0.8), (0.5, 0.2)),
}
"""Touch and lift of each scroll, ``(y, x)``: the finger moves against the direction."""


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
        return np.linalg.norm(across_N2, axis=-1) <= np.float32(TAP_DISTANCE)


def predicted_gestures(actions: Sequence[Action | None]) -> Gestures:
    """The gestures of predicted actions. None stands for an answer without a readable action."""
    rows = [_NOTHING if action is None else _gesture(action) for action in actions]
    return Gestures(
        types_N=np.array([kind for kind, _, _ in rows], dtype=np.int64).reshape(-1),
        touches_N2=_points([touch for _, touch, _ in rows]),
        lifts_N2=_points([lift for _, _, lift in rows]),
    )


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
    gestures = predicted_gestures([step.action for step in steps])
    clicks_K = [index for index, step in enumerate(steps) if _is_recorded_click(step)]
    if clicks_K:
        gestures.touches_N2[clicks_K] = _points([_flipped(steps[index].source["touch"]) for index in clicks_K])
        gestures.lifts_N2[clicks_K] = _points([_flipped(steps[index].source["lift"]) for index in clicks_K])
    return gestures


def _is_recorded_click(step: GuiStep) -> bool:
    source = step.source
    return step.action.name == CLICK and source.get("touch") is not None and source.get("lift") is not None


def _flipped(point: Sequence[float]) -> Point:
    x, y = point
    return y, x


def _gesture(action: Action) -> tuple[int, Point, Point]:
    kind = TYPE_IDS[action.name]
    if action.position is not None:
        x, y = action.position
        return kind, (y, x), (y, x)
    return kind, *_SCROLLS.get(action.name, (_NOWHERE, _NOWHERE))


def _points(points: list[Point]) -> Floats:
    return np.array(points, dtype=np.float32).reshape(-1, 2)
