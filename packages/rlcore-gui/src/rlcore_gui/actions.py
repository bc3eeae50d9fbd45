"""Actions on a screen, and the table that defines them.

One `ActionTable` per data set generates the list of actions in the prompt, writes the labels, reads the answers of the
model and names what the scorer compares, so that none of them can disagree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from rlcore_gui.object_parser import LONGEST, read_object, to_json_text

Point = tuple[float, float]
"""``(x, y)``: 0 to 1 from the left and from the top of the screen."""

KEYS = ("action", "value", "position")
"""The keys of an action, in the order in which it is written."""

DECIMALS = 3
"""Decimals of a written coordinate. Two are too coarse: half a step is 5 pixels on a phone and 27 on a tall page."""

Unreadable = Literal[
    "no action",
    "several actions",
    "too long",
    "not an object",
    "unknown keys",
    "missing keys",
    "unknown action",
    "missing value",
    "superfluous value",
    "value is not text",
    "missing position",
    "superfluous position",
    "position is not two numbers",
    "position out of range",
    "position in pixels",
]
"""Why an answer has no readable action. The texts are fixed, so that they can be counted."""


class UnreadableAction(ValueError):
    """A text that is not exactly one action of the table."""

    def __init__(self, reason: Unreadable, detail: str = "") -> None:
        self.reason: Unreadable = reason
        super().__init__(f"{reason}: {detail}" if detail else reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action on a screen."""

    name: str
    """A name of the table, in capitals."""
    value: str | None = None
    """The typed text or the selected option; None for actions without one."""
    position: Point | None = None
    """Where; None for actions without a position."""

    def as_json(self) -> dict[str, Any]:
        """Return the action as plain data, with the keys that the model writes."""
        position = None if self.position is None else list(self.position)
        return {"action": self.name, "value": self.value, "position": position}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """One row of an `ActionTable`."""

    name: str
    takes_value: bool = False
    takes_position: bool = False
    position_optional: bool = False
    """Whether the position, if taken, may be left out."""
    meaning: str
    """One line of the prompt."""
    aliases: tuple[str, ...] = ()
    """Other names that are read, but never written."""


@dataclass(frozen=True, slots=True)
class ActionTable:
    """The actions of a data set. Names are compared without regard to case and runs of spaces or underscores."""

    kinds: tuple[ActionKind, ...]

    def __post_init__(self) -> None:
        names = [_folded(name) for kind in self.kinds for name in (kind.name, *kind.aliases)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"every name and alias of an action table must be unique; found twice: {twice}")

    def find(self, name: str) -> ActionKind | None:
        """The row with this name or alias; None if there is none."""
        wanted = _folded(name)
        for kind in self.kinds:
            if wanted in map(_folded, (kind.name, *kind.aliases)):
                return kind
        return None

    def prompt_lines(self) -> list[str]:
        """One line per action: its name, meaning, and what ``value`` and ``position`` must be."""
        return [f"- {kind.name}: {kind.meaning} {_requirement(kind)}" for kind in self.kinds]

    def render(self, action: Action) -> str:
        """The text of an action: a JSON object with the keys ``action``, ``value`` and ``position``, in this order.

        Coordinates have three decimals. `parse` reads the text as the same action.

        Raises:
            ValueError: the action does not fit the table; see `UnreadableAction.reason`.
        """
        fitted = self.fitted(action)
        value = json.dumps(fitted.value, ensure_ascii=False)
        position = "null"
        if fitted.position is not None:
            position = "[" + ", ".join(f"{number:.{DECIMALS}f}" for number in fitted.position) + "]"
        return to_json_text({"action": json.dumps(fitted.name), "value": value, "position": position})

    def fitted(self, action: Action) -> Action:
        """The action under the name of its row.

        Raises:
            UnreadableAction: unknown name, missing or superfluous value or position, position out of range.
        """
        kind = self.find(action.name)
        if kind is None:
            raise UnreadableAction("unknown action", f"known are {', '.join(each.name for each in self.kinds)}")
        if kind.takes_value and action.value is None:
            raise UnreadableAction("missing value", kind.name)
        if not kind.takes_value and action.value:
            raise UnreadableAction("superfluous value", kind.name)
        if kind.takes_position and not kind.position_optional and action.position is None:
            raise UnreadableAction("missing position", kind.name)
        if not kind.takes_position and action.position is not None:
            raise UnreadableAction("superfluous position", kind.name)
        if action.position is not None:
            _check_range(action.position)
        return Action(name=kind.name, value=action.value if kind.takes_value else None, position=action.position)

    def parse(self, text: str) -> Action:
        """The action in a text that contains exactly one object.

        JSON and Python literals are read, with the keys in any order, lists or tuples, ``null`` or ``None``, which
        may be omitted. An empty value is accepted where none is allowed.

        Raises:
            UnreadableAction: the text is anything else, or the action does not fit the table.
        """
        if len(text) > LONGEST:
            raise UnreadableAction("too long", f"the limit is {LONGEST:,} characters")
        try:
            found = read_object(text)
        except ValueError as error:
            raise UnreadableAction("not an object", str(error)) from None
        if unknown := set(found) - set(KEYS):
            raise UnreadableAction("unknown keys", ", ".join(sorted(unknown))[:80])
        name, value = found.get("action"), found.get("value")
        if not isinstance(name, str):
            raise UnreadableAction("missing keys", "action")
        if value is not None and not isinstance(value, str):
            raise UnreadableAction("value is not text")
        return self.fitted(Action(name=name, value=value, position=_point(found.get("position"))))


def _point(found: Any) -> Point | None:
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != 2 or any(type(number) not in {int, float} for number in found):
        raise UnreadableAction("position is not two numbers")
    x, y = found
    return float(x), float(y)


def _check_range(position: Iterable[float]) -> None:
    numbers = tuple(position)
    if all(0 <= number <= 1 for number in numbers):
        return
    if all(math.isfinite(number) and number >= 0 for number in numbers) and max(numbers) >= 2:
        raise UnreadableAction("position in pixels", "coordinates are relative, from 0 to 1")
    raise UnreadableAction("position out of range", "coordinates are from 0 to 1")


def _requirement(kind: ActionKind) -> str:
    needed = [name for name, takes in (("value", kind.takes_value), ("position", kind.takes_position)) if takes]
    absent = [name for name in ("value", "position") if name not in needed]
    optional = [needed.pop()] if kind.takes_position and kind.position_optional else []
    parts = [f"needs {' and '.join(needed)}"] if needed else []
    parts += [f"{name} is optional" for name in optional]
    parts += [f"{' and '.join(absent)} {'are' if len(absent) == 2 else 'is'} null"] if absent else []
    return f"({'; '.join(parts)})"


def _folded(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).casefold()
