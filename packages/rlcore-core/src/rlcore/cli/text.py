"""Help texts, and excerpts of long texts."""

from __future__ import annotations

from rlcore import escaping


def examples(*lines: str) -> str:
    """An epilog with one example per line, which click does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str, limit: int = 600) -> str:
    """A text as one printable line, truncated if it is long."""
    safe = escaping.printable(text)
    return safe if len(safe) <= limit else f"{safe[:limit]}… ({len(safe)} characters)"


def excerpt(text: str, limit: int = 600) -> list[str]:
    """The lines of a text, truncated if it is long."""
    shown = text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    return shown.split("\n")
