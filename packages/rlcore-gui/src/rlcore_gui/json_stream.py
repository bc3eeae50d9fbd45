"""Read the items of large JSON files one by one, so that memory does not grow with the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from rlcore.errors import DataError
from rlcore.json_files import check_depth

BLOCK = 1 << 18
"""Bytes that are read at a time."""
LARGEST_ITEM = 1 << 28
"""Limit of one item in bytes."""
MOST_ATTEMPTS = 40
"""Ends of an item that are tried with the fast parser before the slow one finds the end."""

_ENDS = {
    b"[": re.compile(rb"\](?=\s*(?:,\s*\[|\]))"),
    b"{": re.compile(rb"\}(?=\s*(?:,\s*\{|\]))"),
}
"""By the first byte of an item, where it may end: before another item of its kind, or at the end of the list."""
_KINDS = {b"[": (b"]", b"["), b"{": (b"}", b"{")}
"""By the first byte of an item, its last one, and the first one of another item of its kind."""
_SPACE = re.compile(rb"\s*")
_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"\s*:\s*')


def items(path: Path, *, read: Callable[[int], object] | None = None) -> Iterator[tuple[str | None, Any]]:
    """Yield the items of a JSON file that is a list, or an object of lists, each with the key of its list.

    Integers beyond 64 bits become floats.

    Args:
        path: the file; a byte order mark is ignored
        read: called with the number of bytes that were read so far

    Raises:
        DataError: the file cannot be read, or has another form. Names the place.
    """
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:  # a null character in the name is a ValueError
        raise _unreadable(path, error) from None
    try:
        with file:
            yield from _Reader(file, path, read or (lambda done: None)).items()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    found = getattr(error, "strerror", None) or str(error)
    return DataError("the data cannot be read", found=found, where=str(path), fix="correct the path")


class _Reader:
    """A window of the file. ``place`` is the position in the window."""

    def __init__(self, file: BinaryIO, path: Path, read: Callable[[int], object]) -> None:
        self.file, self.path, self.read = file, path, read
        self.window = b""
        self.place = self.dropped = self.line = 0
        self.singly = 0
        """The place in the file up to which items are parsed one by one."""
        self.at_end = False

    def items(self) -> Iterator[tuple[str | None, Any]]:
        self.more()
        self.place = len(b"\xef\xbb\xbf") if self.window.startswith(b"\xef\xbb\xbf") else 0
        first = self.peek()
        if first == b"[":
            yield from ((None, item) for item in self.list_items())
        elif first == b"{":
            yield from self.lists()
        else:
            raise self.wrong("a JSON list, or an object of lists")
        if self.peek():
            raise self.wrong("the end of the file")

    def lists(self) -> Iterator[tuple[str, Any]]:
        self.place += 1
        if self.peek() == b"}":
            self.place += 1
            return
        while True:
            self.peek()
            while (key := _KEY.match(self.window, self.place)) is None or key.end() == len(self.window):
                if self.more() is None:
                    raise self.wrong("a key")
            name = str(json.loads(key[0].rstrip().removesuffix(b":")))
            self.place = key.end()
            if self.peek() != b"[":
                raise self.wrong(f"a list as the value of {name!r}")
            yield from ((name, item) for item in self.list_items())
            if self.separator(b"}"):
                return

    def list_items(self) -> Iterator[Any]:
        self.place += 1
        if self.peek() == b"]":
            self.place += 1
            return
        gap = b""
        while True:
            self.peek()
            yield from self.several(gap) or [self.item()]
            end = self.dropped + self.place
            if self.separator(b"]"):
                return
            if not gap:
                self.peek()
                gap = self.window[end - self.dropped : self.place] if end >= self.dropped else b""

    def several(self, gap: bytes) -> list[Any]:
        """The items up to the last one that ends in the window, parsed at once; empty if it is not found.

        ``gap`` is what separates items: a comma and white space. The same bytes inside of an item do not divide the
        text into two that can be parsed.
        """
        kinds = _KINDS.get(self.window[self.place : self.place + 1])
        if not gap or kinds is None or self.dropped + self.place < self.singly:
            return []
        end = self.window.rfind(gap.join(kinds), self.place) + 1
        if not end:
            return []
        try:
            found = orjson.loads(b"".join((b"[", memoryview(self.window)[self.place : end], b"]")))
        except orjson.JSONDecodeError:
            self.singly = self.dropped + len(self.window)
            return []
        self.place = end
        return found  # type: ignore[no-any-return]

    def separator(self, closing: bytes) -> bool:
        """Move behind a comma or the end of a list or object. Returns whether it was the end."""
        found = self.peek()
        if found not in (b",", closing):
            raise self.wrong(f"a comma or {closing.decode()}")
        self.place += 1
        return found == closing

    def peek(self) -> bytes:
        """Move to the next byte that is not white space, and return it; empty at the end of the file."""
        while True:
            space = _SPACE.match(self.window, self.place)
            assert space is not None
            self.place = space.end()
            if self.place < len(self.window) or self.more() is None:
                return self.window[self.place : self.place + 1]

    def item(self) -> Any:
        """The value at the current place. A text that parses as a value up to a possible end is that value."""
        ends = _ENDS.get(self.window[self.place : self.place + 1])
        searched, attempts = self.place + 1, 0
        while ends is not None and attempts < MOST_ATTEMPTS:
            found = ends.search(self.window, searched)
            if found is None:
                searched = max(self.place + 1, len(self.window) - 1)
                if (moved := self.more()) is None:
                    break
                searched -= moved
                continue
            searched, attempts = found.end(), attempts + 1
            try:
                value = orjson.loads(memoryview(self.window)[self.place : searched])
            except orjson.JSONDecodeError:
                continue  # an end of an inner value, or something that only the slow parser reads
            self.place = searched
            return value
        return self.slow_item()

    def slow_item(self) -> Any:
        """The value at the current place, with the parser of Python, which finds its end itself."""
        while True:
            text = self.window[self.place :].decode("utf-8", "surrogateescape")
            try:
                value, end = json.JSONDecoder().raw_decode(text)
                check_depth(value)
            except (ValueError, RecursionError) as error:
                if self.more() is None:
                    raise self.wrong("valid JSON", f"{error}") from None
                continue
            if end == len(text) and self.more() is not None:
                continue  # a number may go on
            self.place += len(text[:end].encode("utf-8", "surrogateescape"))
            return value

    def more(self) -> int | None:
        """Read another block, and forget what was used. Returns how far places moved; None at the end of the file."""
        if self.at_end:
            return None
        if len(self.window) - self.place > LARGEST_ITEM:
            raise self.wrong(f"an item of at most {LARGEST_ITEM:,} bytes")
        block = self.file.read(max(BLOCK, len(self.window) - self.place))
        moved = self.place
        self.line += self.window.count(b"\n", 0, moved)
        self.window = self.window[moved:] + block
        self.dropped += moved
        self.place = 0
        self.at_end = not block
        self.read(self.dropped + len(self.window))
        return moved if block else None

    def wrong(self, wanted: str, detail: str = "") -> DataError:
        line = self.line + self.window.count(b"\n", 0, self.place) + 1
        shown = self.window[self.place : self.place + 40].decode("utf-8", "replace")
        found = detail or (repr(shown) if shown else "the end of the file")
        where = f"{self.path}, line {line}, byte {self.dropped + self.place:,}"
        return DataError(f"expected {wanted}", found=found, where=where, fix="restore the file, or correct it there")


__all__ = ["items"]
