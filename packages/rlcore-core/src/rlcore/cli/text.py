"""Help texts, and escaping of untrusted text for the terminal."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """An epilog with one example per line, which click does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str, limit: int = 600) -> str:
    """Escape control characters, so that data cannot control the terminal, and truncate long texts."""
    safe = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return safe if len(safe) <= limit else f"{safe[:limit]}… ({len(safe)} characters)"
