"""Data as JSON that every reader takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 1e308
"""No float holds much larger integers, which readers take for infinite, or reject."""


def whole(text: str) -> str:
    """A text in which halves of surrogate pairs are U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def number(value: Any) -> float | None:
    """A finite number; None for everything else."""
    return value if isinstance(value, (int, float)) and abs(value) < LARGEST else None


def plain(value: Any, text: Callable[[str], str] = whole) -> Any:
    """Plain data with `whole` texts. Numbers that are not finite become null, and so do integers that no float holds.

    Args:
        value: nested mappings and lists
        text: what texts and keys become
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {text(str(key)): plain(item, text) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, text) for item in value]
    return number(value) if isinstance(value, (int, float)) else value


__all__ = ["number", "plain", "whole"]
