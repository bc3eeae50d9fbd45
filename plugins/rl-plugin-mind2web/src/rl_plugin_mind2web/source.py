"""The JSON format of Mind2Web that SeeClick published: a list of episodes.

An episode has ``annotation_id``, ``confirmed_task``, ``website``, ``domain``, ``subdomain``, ``action_reprs`` and
``actions``. An action has ``action_uid``, ``operation`` (``op``, ``original_op`` and ``value``) and ``bbox``, in pixels
of its screenshot; many have no ``bbox``. The screenshot is ``ANNOTATION_ID-ACTION_UID.jpg``.

Axes: ``N`` the steps of some episodes, ``B`` all of their boxes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from rlcore_gui.actions import DECIMALS
from rlcore_gui.prepare.screenshots import Flaw, Size
from rlcore_gui.prepare.sources import Columns, SourceEpisode, UnreadableEpisode, texts_column

from rl_plugin_mind2web.actions import ACTIONS

PREFIX = "mind2web_data_"
"""The beginning of the names of SeeClick's files, before the split."""
EXTRA = ("action_uid", "operation", "original_operation", "action_repr", "website", "domain", "subdomain", "split")


@dataclass(slots=True)
class _RecordedStep:
    index: int
    task: str
    action: Mapping[str, Any]
    extra: dict[str, str | None]


class Mind2WebSource:
    """Reads episodes of Mind2Web."""

    dataset = "mind2web"
    extra = pa.struct([pa.field(name, pa.string()) for name in EXTRA])

    def episode(self, key: str | None, item: Any, *, name: str) -> SourceEpisode:
        """The episode of an object with actions."""
        if not isinstance(item, Mapping):
            raise UnreadableEpisode("not an object")
        id, actions = item.get("annotation_id"), item.get("actions")
        if isinstance(id, bool) or not isinstance(id, (str, int)) or id == "":
            raise UnreadableEpisode("no annotation_id")
        if not isinstance(actions, list) or not actions:
            raise UnreadableEpisode("no actions")
        split = _text(item.get("split")) or key or name.removeprefix(PREFIX)
        reprs = item.get("action_reprs")
        if not isinstance(reprs, list) or len(reprs) != len(actions):
            reprs = [None] * len(actions)
        whole = {"split": split, **{name: _text(item.get(name)) for name in ("website", "domain", "subdomain")}}
        task = _text(item.get("confirmed_task")) or ""
        steps = [
            _recorded(number, task, action, described, whole)
            for number, (action, described) in enumerate(zip(actions, reprs, strict=True))
        ]
        uids = [step.extra["action_uid"] for step in steps]
        return SourceEpisode(
            id=str(id),
            group=split,
            stratum=whole["domain"] or "",
            steps=steps,
            images=[f"{id}-{uid}.jpg" if uid else None for uid in uids],
        )

    def columns(self, steps_N: Sequence[_RecordedStep], sizes_N: Sequence[Size | Flaw]) -> Columns:
        """What these steps are. Raises nothing: what cannot be read is a flaw of its step."""
        action_N: list[str] = []
        value_N: list[str | None] = []
        flaw_N: list[str | None] = []
        positions: list[tuple[float, float]] = []
        boxes: list[tuple[float, float, float, float]] = []
        counts: list[int] = []
        clipped = 0
        for step, size in zip(steps_N, sizes_N, strict=True):
            operation = step.extra["operation"] or step.extra["original_operation"] or ""
            kind = ACTIONS.find(operation)
            value = _value(step.action) if kind is not None and kind.takes_value else None
            box, cut, flaw = _box(step.action.get("bbox"), size)
            action_N.append(kind.name if kind is not None else "")
            value_N.append(value)
            positions.append(_centre(box) if box is not None else (math.nan, math.nan))
            boxes += [box] if box is not None else []
            counts.append(box is not None)
            clipped += cut
            if kind is None:
                flaw = "unknown action"
            elif kind.takes_value and not value:
                flaw = f"{kind.name} without a value"
            elif not step.task.strip():
                flaw = "no task"
            elif flaw is None and box is not None and not _survives_rounding(box):
                flaw = "box smaller than a coordinate can point at"
            flaw_N.append(flaw)
        extras = [texts_column([step.extra[name] for step in steps_N]) for name in EXTRA]
        return Columns(
            index_N=[step.index for step in steps_N],
            task_N=[step.task for step in steps_N],
            action_N=action_N,
            value_N=value_N,
            position_N2=np.array(positions, dtype=np.float64).reshape(-1, 2),
            boxes_B4=np.array(boxes, dtype=np.float64).reshape(-1, 4),
            boxes_N=np.array(counts, dtype=np.int64),
            flaw_N=flaw_N,
            source=pa.StructArray.from_arrays(extras, fields=list(self.extra)),
            notes={"boxes partly outside of their screenshot, which were cut": clipped},
        )


def _recorded(number: int, task: str, action: Any, described: Any, whole: Mapping[str, str | None]) -> _RecordedStep:
    action = action if isinstance(action, Mapping) else {}
    operation = action.get("operation")
    operation = operation if isinstance(operation, Mapping) else {}
    extra = {
        "action_uid": _text(action.get("action_uid")),
        "operation": _text(operation.get("op")),
        "original_operation": _text(operation.get("original_op")),
        "action_repr": _text(described) or _text(action.get("action_repr")),
        **whole,
    }
    return _RecordedStep(number, task, action, extra)


def _value(action: Mapping[str, Any]) -> str | None:
    """The typed text or the chosen option. The text of the element, which ``action_reprs`` has, is neither."""
    operation = action.get("operation")
    return _text(operation.get("value")) if isinstance(operation, Mapping) else None


def _box(found: Any, size: Size | Flaw) -> tuple[tuple[float, float, float, float] | None, bool, str | None]:
    """The visible part of a box, relative to the screenshot as y, x, height, width; whether it was cut; its flaw."""
    if not isinstance(found, Mapping):
        return None, False, "no box"
    numbers = [found.get(name) for name in ("x", "y", "width", "height")]
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
        return None, False, "box without numbers"
    left, top, width, height = (float(number or 0) for number in numbers)
    if not all(map(math.isfinite, (left, top, width, height))):
        return None, False, "box without numbers"
    if width <= 0 or height <= 0:
        return None, False, "empty box"
    if isinstance(size, str):
        return None, False, None
    right, bottom = min(left + width, size[0]), min(top + height, size[1])
    left, top = max(left, 0.0), max(top, 0.0)
    if right <= left or bottom <= top:
        return None, False, "box outside of the screenshot"
    cut = (right - left, bottom - top) != (width, height) and max(width - right + left, height - bottom + top) > 1e-6
    box = (top / size[1], left / size[0], (bottom - top) / size[1], (right - left) / size[0])
    return box, cut, None


def _centre(box: tuple[float, float, float, float]) -> tuple[float, float]:
    y, x, height, width = box
    return x + width / 2, y + height / 2


def _survives_rounding(box: tuple[float, float, float, float]) -> bool:
    """Whether the centre is still in the box when it is written with the decimals of a label."""
    y, x, height, width = box
    across, down = (round(number, DECIMALS) for number in _centre(box))
    return x <= across <= x + width and y <= down <= y + height


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    return str(value)


__all__ = ["Mind2WebSource"]
