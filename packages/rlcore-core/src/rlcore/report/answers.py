"""Parts of a model's text: reasoning, visible text, and the final answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlcore.types import Trajectory

OPEN, CLOSE = "<think>", "</think>"
EXPECTED = ("answer", "ground_truth", "expected", "expected_answer", "solution", "label", "target", "final_answer")
"""Fields of a task that contain the expected answer. The first one that a task has is shown."""
_ANSWER = re.compile(r"<answer>(?:(?!<answer>).)*?</answer>", re.DOTALL)


def parts_of(text: str) -> list[tuple[bool, str]]:
    """The parts of a text in order, each with whether it is reasoning.

    Reasoning is between ``<think>`` and ``</think>``. It may begin before the text, because some chat formats write the
    first tag into the prompt, and it may be cut off.
    """
    found: list[tuple[bool, str]] = []
    first, close, rest = text.partition(CLOSE)
    if close and OPEN not in first:
        found, text = [(True, first)], rest
    while text:
        before, opened, rest = text.partition(OPEN)
        inside, _, text = rest.partition(CLOSE)
        found += [(False, before), (True, inside)] if opened else [(False, before)]
    return [(reasoning, part.strip("\n ")) for reasoning, part in found if part.strip()]


def final_answer(trajectory: Trajectory) -> str:
    """What the model answered: its last ``<answer>``, otherwise its last message without reasoning."""
    visible = "\n".join(part for reasoning, part in parts_of(trajectory.final_response) if not reasoning)
    if found := _ANSWER.findall(visible):
        return str(found[-1]).removeprefix("<answer>").removesuffix("</answer>").strip()
    return visible.strip()


def expected_answer(fields: Mapping[str, Any]) -> str | None:
    """The expected answer of a task; None if it has none or several."""
    value = next((fields[name] for name in EXPECTED if fields.get(name) is not None), None)
    return str(value) if isinstance(value, (str, int, float)) else None


__all__ = ["expected_answer", "final_answer", "parts_of"]
