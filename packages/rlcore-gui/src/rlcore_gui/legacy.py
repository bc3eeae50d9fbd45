"""The parser and the form score of GUI-Rise's published rewards, with their errors (arXiv 2510.27210).

They exist to compare with scores of that program. Use `rlcore_gui.answers` for anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rlcore_gui.actions import Point

_BLOCK = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_NUMBER = r"([0-9.]+)"
LONGEST = 10_000
"""Limit of the searched text in characters: more than the 2,048 tokens of the published settings usually have."""
_ACTION = re.compile(
    rf"'action':\s*'(.*?)',\s*'value':\s*(?:None|'(.*?)'),\s*'position':\s*(?:None|\[{_NUMBER},\s*{_NUMBER}\])"
)
_END = re.compile(rf"(?:None|'),\s*'position':\s*(?:None|\[{_NUMBER},\s*{_NUMBER}\])")
"""What every readable text contains. Texts without it need not be searched for the rest, which can take long."""
_FORM = [re.compile(rf"<{name}>.*?</{name}>\s", re.DOTALL) for name in ("Progress Estimation", "Decision Making")]
_FORM += [re.compile(r"<History Summary>.*?</History Summary>\s", re.DOTALL), _BLOCK]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyAction:
    """An action as the old parser reads it: any name, and a position of any size."""

    name: str
    value: str | None
    position: Point | None


def parse_action(text: str) -> LegacyAction | None:
    """The first action of a text; None if the old parser fails.

    It replaces double quotes by single ones and expects the keys ``action``, ``value`` and ``position`` in this order,
    values on one line or ``None``, and positions as lists of two numbers without sign, exponent or space at the ends.
    """
    block = _BLOCK.search(text)
    searched = (block[1] if block else text).replace('"', "'")[:LONGEST]
    found = _ACTION.search(searched) if _END.search(searched) else None
    if not found:
        return None
    name, value, x, y = found.groups()
    try:
        position = None if x is None else (float(x), float(y))
    except ValueError:
        return None
    return LegacyAction(name=name, value=value, position=position)


def form(text: str) -> float:
    """1 if the text contains all four sections in any order, else 0.

    The reasoning must be called *Decision Making*, which the published prompt calls *Decision Reasoning*.
    """
    return float(all(pattern.search(text) for pattern in _FORM))


def parts(text: str, score: Callable[[LegacyAction], float]) -> dict[str, float]:
    """The parts of a published reward: the score of the action, whether it can be read, and the form of the answer."""
    found = parse_action(text)
    action = 0.0 if found is None else score(found)
    return {"action": action, "action_format": float(found is not None), "think_format": form(text)}
