"""The keys of the rewards' tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import Table

Difference = Literal["unicode", "case", "whitespace", "punctuation", "articles"]


class StringEqualConfig(Table):
    """Keys of ``string-equal``."""

    field: str = "answer"
    """Field of the task that holds the expected text, or a list of accepted texts."""
    ignore: tuple[Difference, ...] = ("unicode", "case", "whitespace")
    """Differences that do not count, on both sides; an empty list compares character by character."""


class MathNumericEqualConfig(Table):
    """Keys of ``math-numeric-equal``."""

    field: str = "answer"
    """Field of the task that holds the expected number."""
    require_tool: bool = False
    """Whether a trajectory in which no tool answered scores 0 even when its number is right."""
    partial_credit: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Value of a wrong number in a trajectory in which a tool answered. A response without a number stays at 0."""


class MathRewardStringEqualConfig(Table):
    """``math-reward-string-equal`` has no keys: it is what it was."""
