"""The official action matching of AITW for whole batches, and a strict one beside it.

The official one is that of Rawles et al. (2023, arXiv 2307.10088, section 4).

All comparisons are made in float32, as the official evaluation makes them. Axes: N pairs of actions, M boxes of all
pairs, 4 is ``(y, x, height, width)``, 2 is ``(y, x)``, all relative to the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
from rlcore_gui.actions import Action
from rlcore_gui.steps import Box, GuiStep

from rl_plugin_aitw.actions import SCROLLS, TYPE
from rl_plugin_aitw.gestures import DUAL_POINT, NO_TYPE, Floats, Gestures, predicted_gestures, reference_gestures

NEAR = 0.14
"""Two taps that are at most this far apart match without a box."""
ENLARGEMENT = 1.4
"""The width and height that are added to a box, relative to its own."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How a predicted action compares with the recorded one."""

    official: bool
    """The official matching, which ignores typed text and the direction of a scroll."""
    strict: bool
    """As official, with equal text and the direction of the scroll."""
    same_type: bool
    """Whether both have the same official type, in which taps and scrolls are one."""


def match_all(actions: Sequence[Action | None], steps: Sequence[GuiStep]) -> list[Match]:
    """Compare predicted actions with recorded ones. None stands for an answer without a readable action."""
    predicted, reference = predicted_gestures(actions), reference_gestures(steps)
    official = official_matches(predicted, reference, [step.boxes for step in steps]).tolist()
    same_type = (predicted.types_N == reference.types_N).tolist()
    return [
        Match(official=matches, strict=matches and _as_intended(action, step.action), same_type=same)
        for action, step, matches, same in zip(actions, steps, official, same_type, strict=True)
    ]


def same_text(one: str | None, other: str | None) -> bool:
    """Whether two typed texts are equal, without regard to case and white space around words."""
    return _plain(one) == _plain(other)


def official_matches(predicted: Gestures, reference: Gestures, boxes: Sequence[Sequence[Box]]) -> Bools:
    """Whether each predicted action matches its reference. Shape [N].

    - Other actions than taps and drags match if their types are equal. Typed text is ignored.
    - Two taps match if their touches are near each other, or an enlarged box contains both.
    - Two drags match if both are vertical or both horizontal. Their direction is ignored.

    Args:
        predicted: N gestures.
        reference: N gestures.
        boxes: the elements on the screen of each pair. A pair without boxes is decided by the distance alone.
    """
    same_type_N = (predicted.types_N == reference.types_N) & (predicted.types_N != NO_TYPE)
    both_dual_N = same_type_N & (predicted.types_N == DUAL_POINT)
    taps_N, reference_taps_N = predicted.taps_N, reference.taps_N
    distances_N = np.linalg.norm(predicted.touches_N2 - reference.touches_N2, axis=-1)
    both_tap_N = both_dual_N & taps_N & reference_taps_N
    matches_N: Bools = same_type_N & ~both_dual_N
    matches_N |= both_tap_N & (distances_N <= np.float32(NEAR))
    both_drag_N = both_dual_N & ~taps_N & ~reference_taps_N
    matches_N |= both_drag_N & (_axes(predicted) == _axes(reference))
    open_K = np.flatnonzero(both_tap_N & ~matches_N)
    if len(open_K):
        shared_K = _in_one_box(predicted[open_K], reference[open_K], [boxes[index] for index in open_K])
        matches_N[open_K] = shared_K
    return matches_N


def enlarged(boxes_M4: Floats) -> Floats:
    """Boxes of 2.4 times the height and width around the same centre. Shape [M, 4].

    As in the official evaluation, a box that would begin outside of the screen begins at its edge and keeps its size.
    """
    y, x, height, width = boxes_M4.T
    more_height, more_width = np.float32(ENLARGEMENT) * height, np.float32(ENLARGEMENT) * width
    top = np.maximum(np.float32(0), y - more_height / 2)
    left = np.maximum(np.float32(0), x - more_width / 2)
    taller, wider = (np.minimum(np.float32(1), each) for each in (height + more_height, width + more_width))
    found_M4: Floats = np.stack([top, left, taller, wider], axis=-1)
    return found_M4


def _in_one_box(first: Gestures, second: Gestures, boxes: Sequence[Sequence[Box]]) -> Bools:
    """Whether an enlarged box contains both touches, its edges included. Shape [N]."""
    counts_N = np.array([len(each) for each in boxes], dtype=np.int64)
    numbers = np.fromiter(chain.from_iterable(chain.from_iterable(boxes)), np.float32, count=4 * int(counts_N.sum()))
    boxes_M4 = enlarged(numbers.reshape(-1, 4))
    pairs_M = np.repeat(np.arange(len(boxes)), counts_N)
    both_M = _contains(boxes_M4, first.touches_N2[pairs_M]) & _contains(boxes_M4, second.touches_N2[pairs_M])
    shared_N: Bools = np.bincount(pairs_M[both_M], minlength=len(boxes)) > 0
    return shared_N


def _contains(boxes_M4: Floats, points_M2: Floats) -> Bools:
    top, left, height, width = boxes_M4.T
    y, x = points_M2.T
    inside: Bools = (y >= top) & (y <= top + height) & (x >= left) & (x <= left + width)
    return inside


def _axes(gestures: Gestures) -> npt.NDArray[np.intp]:
    """0 for vertical drags, 1 for horizontal ones. Shape [N]."""
    axes: npt.NDArray[np.intp] = np.abs(gestures.touches_N2 - gestures.lifts_N2).argmax(axis=-1)
    return axes


def _as_intended(action: Action | None, reference: Action) -> bool:
    """Whether two actions that match officially also agree in what the official matching ignores."""
    assert action is not None
    if reference.name in SCROLLS:
        return action.name == reference.name
    return reference.name != TYPE or same_text(action.value, reference.value)


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).casefold()
