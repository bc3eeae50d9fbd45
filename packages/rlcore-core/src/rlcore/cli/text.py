"""Pieces of help texts, and texts of others made safe to print."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """An epilog of examples, one a line, that click does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str, limit: int = 600) -> str:
    """Control characters shown as escapes, so that data cannot drive the terminal; what is too long is cut."""
    safe = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return safe if len(safe) <= limit else f"{safe[:limit]}… ({len(safe)} characters)"
