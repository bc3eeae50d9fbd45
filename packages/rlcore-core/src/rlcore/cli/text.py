"""Pieces of help texts."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """An epilog of examples, one a line, that click does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
