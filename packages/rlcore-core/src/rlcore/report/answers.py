"""Parts of a model's text: reasoning, visible text, and the final answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlcore.types import Trajectory

OPEN, CLOSE, FENCE = "<think>", "</think>", "```"
EXPECTED = ("answer", "ground_truth", "expected", "expected_answer", "solution", "label", "target", "final_answer")
"""Fields of a task that contain the expected answer. The first one that a task has is shown."""
_OPENING = re.compile(r"```[\w+-]*[ \t]*")
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


def code_of(text: str) -> list[tuple[bool, str]]:
    """The parts of a text in order, each with whether it is code: the lines between two fences of three backticks.

    Lines after a fence that is never closed are no code.
    """
    found: list[tuple[bool, list[str]]] = [(False, [])]
    for line in text.split("\n"):
        inside, lines = found[-1]
        if inside and line.strip() == FENCE:
            found.append((False, []))
        elif not inside and _OPENING.fullmatch(line):
            found.append((True, [line]))
        else:
            lines.append(line)
    if found[-1][0]:  # never closed
        (_, before), (_, rest) = found[-2:]
        found[-2:] = [(False, [*before, *rest])]
    parts = [(code, "\n".join(lines[1:] if code else lines).strip("\n")) for code, lines in found]
    return [(code, part) for code, part in parts if part.strip()]


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


__all__ = ["code_of", "expected_answer", "final_answer", "parts_of"]
