"""The parser and the form score of GUI-Rise's published rewards, with their errors (arXiv 2510.27210).

They exist to compare with scores of that program. Use `rlcore_gui.answers` for anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlcore_gui.actions import Point
from rlcore_gui.literals import LONGEST

_BLOCK = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_NUMBER = r"([\d.]+)"
_ACTION = re.compile(
    r"'action':\s*'(.*?)',\s*'value':\s*(?:None|'(.*?)'),\s*'position':\s*(?:None|\[\s*"
    + _NUMBER
    + r"\s*,\s*"
    + _NUMBER
    + r"\s*\])",
    re.DOTALL,
)
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
    ``None``, and positions as lists of two numbers without sign or exponent.
    """
    block = _BLOCK.search(text)
    found = _ACTION.search((block[1] if block else text).replace('"', "'")[:LONGEST])
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
