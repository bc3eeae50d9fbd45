"""Long texts, cut to their beginning and their end."""

from __future__ import annotations


def cut(text: str, characters: int) -> str:
    """At most this many characters: of a longer text, the beginning and the end with a marker in between."""
    if len(text) <= characters:
        return text
    return joined(text[:characters], text[-characters:], len(text), characters, "characters")


def joined(head: str, tail: str, length: int, characters: int, unit: str) -> str:
    """A text of which only the beginning and the end are known.

    Args:
        head: the beginning, at least as long as the part that is kept
        tail: the end, likewise
        length: of the whole text, in the given unit
        characters: of the result at most; more than 60
        unit: for the marker, ``characters`` or ``bytes``
    """
    marker = f"\n[... {length:,} {unit} in all, the middle is left out ...]\n"
    kept = max(0, characters - len(marker))
    end = kept // 2
    return head[: kept - end] + marker + (tail[-end:] if end else "")
