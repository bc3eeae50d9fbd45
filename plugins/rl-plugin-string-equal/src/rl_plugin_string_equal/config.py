"""Configuration of the rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import Table

Difference = Literal["unicode", "case", "whitespace", "punctuation", "articles"]


class StringEqualConfig(Table):
    """Keys of ``string-equal``."""

    field: str = "answer"
    """Field of the task with the expected text or a list of accepted texts."""
    ignore: tuple[Difference, ...] = ("unicode", "case", "whitespace")
    """Differences to ignore on both sides; an empty list compares character by character."""


class MathNumericEqualConfig(Table):
    """Keys of ``math-numeric-equal``."""

    field: str = "answer"
    """Field of the task with the expected number."""
    require_tool: bool = False
    """Whether a trajectory without a tool message scores 0 even if its number is correct."""
    partial_credit: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Value of a wrong number in a trajectory with a tool message. A response without a number scores 0."""


class MathRewardStringEqualConfig(Table):
    """``math-reward-string-equal`` has no keys."""
