"""The JSON format of AITW that SeeClick published: domains, each a list of episodes, each a list of steps.

A step has ``ep_id``, ``step``, ``goal``, ``img_filename`` (without its suffix), ``action_type_id``,
``action_type_text``, ``touch`` and ``lift`` (x, y), ``type_text`` and ``annot_position``, the flat list of all boxes
(y, x, height, width). Numbers and texts are accepted for each other, and missing values are replaced by neutral ones.

Axes: ``N`` the steps of some episodes, ``B`` all of their boxes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from rlcore_gui.prepare.screenshots import Flaw, Size
from rlcore_gui.prepare.sources import Columns, Floats, SourceEpisode, UnreadableEpisode, points_column, texts_column

from rl_plugin_aitw.actions import CLICK, COMPLETE, IMPOSSIBLE, PRESS_BACK, PRESS_ENTER, PRESS_HOME, SCROLLS, TYPE

TAP_DISTANCE = 0.04
"""Length of a gesture, relative to the screen, up to which it is a tap."""
SUFFIXES = (".png", ".jpg", ".jpeg")
MOST = 2**31
"""Limit of step numbers and types of actions."""
LARGEST = 1.5
"""Relative coordinates and sizes beyond this are pixels."""

_UP, _DOWN, _LEFT, _RIGHT = SCROLLS
_DUAL_POINT = 4
_BY_ID = {3: TYPE, 5: PRESS_BACK, 6: PRESS_HOME, 7: PRESS_ENTER, 10: COMPLETE, 11: IMPOSSIBLE}
_SCROLLS_BY_ID = {0: _DOWN, 1: _UP, 8: _LEFT, 9: _RIGHT}
"""Numbers that SeeClick uses for scrolls in answers."""
_GESTURES = (CLICK, *SCROLLS)
_NUMBERS = {_DUAL_POINT, *_BY_ID, *_SCROLLS_BY_ID}
_BY_TEXT = {name.lower(): name for name in (CLICK, TYPE, *SCROLLS, *_BY_ID.values())}
_DEFAULTS: Mapping[str, Any] = {
    "step": None,
    "goal": None,
    "action_type_id": None,
    "action_type_text": "",
    "type_text": "",
    "touch": None,
    "lift": None,
    "annot_position": None,
}
_values = itemgetter(*_DEFAULTS)


class AitwSource:
    """Reads episodes of AITW."""

    dataset = "aitw"
    extra = pa.struct(
        [
            pa.field("action_type_id", pa.int32()),
            pa.field("action_type_text", pa.string()),
            pa.field("touch", pa.list_(pa.float64(), 2)),
            pa.field("lift", pa.list_(pa.float64(), 2)),
        ]
    )

    def __init__(self, *, pixels: bool = False) -> None:
        """``pixels``: all coordinates of the source are in pixels of the screenshot."""
        self._pixels = pixels

    def episode(self, key: str | None, item: Any, *, name: str) -> SourceEpisode:
        """The episode of a list of steps, or of an object with the list in ``steps``."""
        steps = item.get("steps") if isinstance(item, Mapping) else item
        if not isinstance(steps, list) or not steps:
            raise UnreadableEpisode("not a list of steps")
        domain = key or name
        return SourceEpisode(id=_episode_id(steps), group=domain, stratum=domain, steps=steps, images=_images(steps))

    def columns(self, steps_N: Sequence[Any], sizes_N: Sequence[Size | Flaw]) -> Columns:
        """What these steps are. Raises nothing: what cannot be read is a flaw of its step."""
        values_N = [_values({**_DEFAULTS, **(step if isinstance(step, dict) else {})}) for step in steps_N]
        index_N, goal_N, id_N, text_N, typed_N, touch_N, lift_N, boxes_N = zip(*values_N, strict=True)
        touch_N2, lift_N2 = (
            np.array(list(map(_point, points)), np.float64).reshape(-1, 2) for points in (touch_N, lift_N)
        )
        boxes_B4, counts_N, odd_N = _boxes(boxes_N)
        if self._pixels:
            scale_N2 = np.array([(1, 1) if isinstance(size, str) else size for size in sizes_N], dtype=np.float64)
            negative_N2 = (touch_N2 < 0) | (lift_N2 < 0)  # no gesture
            touch_N2 = np.where(negative_N2, touch_N2, touch_N2 / scale_N2)
            lift_N2 = np.where(negative_N2, lift_N2, lift_N2 / scale_N2)
            boxes_B4 = boxes_B4 / np.repeat(scale_N2[:, [1, 0, 1, 0]], counts_N, axis=0)
        action_N, clashes = _names(id_N, text_N, touch_N2, lift_N2)
        click_N = np.array([name == CLICK for name in action_N], dtype=bool)
        position_N2 = np.where(click_N[:, None], (touch_N2 + lift_N2) / 2, np.nan)
        flaw_N = _flaws(action_N, click_N, position_N2, boxes_B4, counts_N)
        position_N2[~_on_screen(position_N2)] = np.nan
        task_N = [goal if isinstance(goal, str) else "" for goal in goal_N]
        source = pa.StructArray.from_arrays(
            [
                pa.array(list(map(_whole, id_N)), pa.int32()),
                texts_column([text if isinstance(text, str) else None for text in text_N]),
                points_column(touch_N2),
                points_column(lift_N2),
            ],
            fields=list(self.extra),
        )
        return Columns(
            index_N=[-1 if (whole := _whole(index)) is None else whole for index in index_N],
            task_N=task_N,
            action_N=action_N,
            value_N=[_text(typed) if name == TYPE else None for name, typed in zip(action_N, typed_N, strict=True)],
            position_N2=position_N2,
            boxes_B4=boxes_B4,
            boxes_N=counts_N,
            flaw_N=[
                flaw or (None if task and not task.isspace() else "no task")
                for flaw, task in zip(flaw_N, task_N, strict=True)
            ],
            source=source,
            notes={
                "clicks on screens without boxes, which only their distance can match": int(
                    (click_N & (counts_N == 0)).sum()
                ),
                "steps with an incomplete last box, which was dropped": int(odd_N.sum()),
                "boxes without height or width": int((boxes_B4[:, 2:] <= 0).any(axis=1).sum()),
                "steps whose number and text name different actions, so the number counts": clashes,
            },
        )


def _episode_id(steps: Sequence[Any]) -> str:
    """The id that the steps of an episode share."""
    found = {str(id) for step in steps if isinstance(step, dict) and (id := step.get("ep_id")) is not None}
    if len(found) != 1:
        raise UnreadableEpisode("several episode ids" if found else "no episode id")
    return found.pop()


def _images(steps: Sequence[Any]) -> list[str | None]:
    """The names of screenshots; None for a step without one."""
    names = [step.get("img_filename") if isinstance(step, dict) else None for step in steps]
    return [
        (name if name.endswith(SUFFIXES) else f"{name}.png") if isinstance(name, str) and name.strip() else None
        for name in names
    ]


def _point(point: Any) -> tuple[float, float]:
    if isinstance(point, (list, tuple)) and len(point) == 2:
        return _number(point[0]), _number(point[1])
    return math.nan, math.nan


def _number(value: Any) -> float:
    """As numpy converts it, or else not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _boxes(boxes_N: Sequence[Any]) -> tuple[Floats, np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any]]:
    """All boxes, the number of each step, and which steps had an incomplete box."""
    flat, counts, odd = array("d"), [], []
    for boxes in boxes_N:
        try:
            numbers = array("d", boxes)
        except (TypeError, OverflowError):  # no flat list of numbers
            numbers = array("d", _numbers(boxes))
        count = len(numbers) // 4
        flat.extend(numbers[: 4 * count])
        counts.append(count)
        odd.append(len(numbers) > 4 * count)
    return np.frombuffer(flat).reshape(-1, 4), np.array(counts, dtype=np.int64), np.array(odd, dtype=bool)


def _numbers(boxes: Any) -> list[float]:
    """The numbers of a flat or nested list. Anything else is not a number."""
    if isinstance(boxes, (list, tuple)):
        parts = (_numbers(item) if isinstance(item, (list, tuple)) else [_number(item)] for item in boxes)
        return list(chain.from_iterable(parts))
    return []


def _flaws(
    action_N: Sequence[str],
    click_N: np.ndarray[Any, Any],
    position_N2: Floats,
    boxes_B4: Floats,
    counts_N: np.ndarray[Any, Any],
) -> list[str | None]:
    flaw_N: list[str | None] = [None if name else "unknown action" for name in action_N]
    wrong_N = click_N & ~_on_screen(position_N2)
    with np.errstate(invalid="ignore"):
        pixels_N = click_N & (position_N2 > LARGEST).any(axis=1)
        pixels_B = (boxes_B4 > LARGEST).any(axis=1)
        finite_B = np.isfinite(boxes_B4).all(axis=1)
    owner_B = np.repeat(np.arange(len(counts_N)), counts_N)
    reasons = (
        (wrong_N, "click off the screen"),
        (_any(owner_B[~finite_B], len(counts_N)), "box without numbers"),
        (pixels_N | _any(owner_B[pixels_B], len(counts_N)), "coordinates in pixels"),
    )
    for found_N, reason in reasons:
        for number in np.flatnonzero(found_N).tolist():
            flaw_N[number] = reason
    return flaw_N


def _any(owner: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    found_N = np.zeros(count, dtype=bool)
    found_N[owner] = True
    return found_N


def _on_screen(position_N2: Floats) -> np.ndarray[Any, Any]:
    with np.errstate(invalid="ignore"):
        return np.asarray(((position_N2 >= 0) & (position_N2 <= 1)).all(axis=1))


def _names(id_N: Sequence[Any], text_N: Sequence[Any], touch_N2: Floats, lift_N2: Floats) -> tuple[list[str], int]:
    """The actions of steps, empty if unknown; and how many have a number and a text that disagree."""
    found_N: list[str] = []
    clashes = 0
    for place, (id, text) in enumerate(zip(id_N, text_N, strict=True)):
        number, stated = _whole(id), _stated(text)
        found_N.append(_name(number, stated, touch_N2[place], lift_N2[place]))
        clashes += bool(stated) and number in _NUMBERS and found_N[-1] != stated
    return found_N, clashes


def _name(number: int | None, stated: str, touch: Floats, lift: Floats) -> str:
    """The action of a step; empty if it is unknown. The number decides, but the text which gesture it is."""
    if number == _DUAL_POINT:
        return stated if stated in _GESTURES else _gesture(touch, lift)
    return _BY_ID.get(number or -1) or stated or _SCROLLS_BY_ID.get(-1 if number is None else number, "")


def _stated(text: Any) -> str:
    """The action that a text names; empty for other texts."""
    return _BY_TEXT.get(" ".join(text.replace("_", " ").split()).casefold(), "") if isinstance(text, str) else ""


def _gesture(touch: Floats, lift: Floats) -> str:
    """A tap, or the scroll by the direction of the finger: a finger that moves up scrolls down."""
    if not (np.isfinite(touch).all() and np.isfinite(lift).all()):
        return ""
    right, down = (lift - touch).tolist()
    if math.hypot(right, down) <= TAP_DISTANCE:
        return CLICK
    if abs(down) >= abs(right):
        return _UP if down > 0 else _DOWN
    return _LEFT if right > 0 else _RIGHT


def _whole(number: Any) -> int | None:
    if isinstance(number, str):
        number = number.strip()
        return int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else None
    whole = isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) < MOST
    return int(number) if whole and number == int(number) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


__all__ = ["AitwSource"]
