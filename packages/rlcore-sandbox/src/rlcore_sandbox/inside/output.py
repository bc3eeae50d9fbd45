"""Long texts and the output of a cell, cut to their beginning and their end."""

from __future__ import annotations

MOST_BYTES = 64 * 2**20
"""Bytes that a cell may write. Reading endless output would take time until the cell reaches its limit."""
LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""


class Output:
    """Collects the bytes of a stream.

    Args:
        characters: of the text at most
    """

    def __init__(self, characters: int) -> None:
        self._characters, self._kept = characters, characters * LONGEST_CHARACTER
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0
        """Bytes that were written."""

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.total += len(data)
        if (free := self._kept - len(self._head)) > 0:
            self._head += data[:free]
            data = data[free:]
        if data:
            self._tail += data[-self._kept :]
            if len(self._tail) > 2 * self._kept:
                del self._tail[: -self._kept]

    def text(self) -> str:
        """The text, cut to the limit."""
        head = self._head.decode("utf-8", "replace")
        if self.total <= self._kept:
            return cut(head, self._characters)
        tail = self._tail.decode("utf-8", "replace")
        if self.total <= self._kept + len(self._tail):
            whole = (self._head + self._tail).decode("utf-8", "replace")
            return cut(whole, self._characters)
        return joined(head, tail, self.total, self._characters, "bytes")


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
