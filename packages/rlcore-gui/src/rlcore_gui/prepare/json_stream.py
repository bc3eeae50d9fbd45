"""Read the items of large JSON files one by one, so that memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import ijson
from rlcore.errors import DataError
from rlcore.json_files import MAX_DEPTH, TOO_DEEP

BLOCK = 1 << 16
"""Bytes that are read at a time."""
LARGEST_ITEM = 1 << 28
"""Limit of one item in bytes."""
BOM = b"\xef\xbb\xbf"
Item = tuple[str | None, Any]


def items(path: Path, *, read: Callable[[int], object] | None = None) -> Iterator[Item]:
    """Yield the items of a JSON file that is a list, or an object of lists, each with the key of its list.

    A lone high surrogate becomes a question mark.

    Args:
        path: the file; a byte order mark is ignored
        read: called with the number of bytes of each block that was read

    Raises:
        DataError: the file cannot be read, has another form, or contains a number beyond 64 bits or a lone low
            surrogate. Names the place.
    """
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:  # a null character in the name is a ValueError
        raise _unreadable(path, error) from None
    with file:
        parser = _Parser()
        try:
            place = last = _skip_mark(file)
            while block := file.read(BLOCK):
                found = parser.feed(block)
                last = place if found else last
                place += len(block)
                if place - last > LARGEST_ITEM:
                    larger = f"an item that begins near byte {last:,} and is larger"
                    raise DataError(f"expected items of at most {LARGEST_ITEM:,} bytes", found=larger, where=str(path))
                if read is not None:
                    read(len(block))
                yield from found
            parser.close()
        except _Wrong as error:
            raise _located(error, path, file, max(0, place - BLOCK)) from None
        except OSError as error:
            raise _unreadable(path, error) from None


class _Wrong(Exception):
    """JSON that cannot be read as items."""

    def __init__(self, wanted: str, reason: str = "") -> None:
        super().__init__(wanted)
        self.wanted, self.reason = wanted, reason


class _Parser:
    """Builds items from the bytes of a file."""

    def __init__(self) -> None:
        self._events: Any = ijson.sendable_list()
        self._parser = ijson.basic_parse_coro(self._events, use_float=True)
        self._open: list[Any] = []
        """The containers around the next event, the outermost first. Those that surround items stay empty."""
        self._level = 0
        """The number of containers that surround an item: the list, and the object if there is one."""
        self._key: str | None = None
        """The key of the list."""
        self._name = ""
        """The last key of any object."""

    def feed(self, block: bytes) -> list[Item]:
        """The items that end in this block. Raises `_Wrong`."""
        self._call(self._parser.send, block)
        found = self._items()
        self._events.clear()
        return found

    def close(self) -> None:
        """End the file. Raises `_Wrong` if it is not complete."""
        self._call(self._parser.close)
        self._items()

    def _call(self, method: Callable[..., object], *arguments: bytes) -> None:
        try:
            method(*arguments)
        except (ijson.JSONError, ValueError) as error:
            raise _Wrong("valid JSON", str(error).removeprefix("b'").replace("\\n", "\n").partition("\n")[0]) from None

    def _items(self) -> list[Item]:
        found: list[Item] = []
        opened, level = self._open, self._level
        inner = opened[-1] if len(opened) > level else None
        add = inner.append if isinstance(inner, list) else None
        for event, value in self._events:
            if add is not None and event == "number":  # most events
                add(value)
                continue
            if event == "map_key":
                self._name = value
                continue
            if event in ("end_array", "end_map"):
                ended = opened.pop()
                if len(opened) == level:
                    found.append((self._key, ended))
            else:
                begins = event in ("start_array", "start_map")
                if begins:
                    value = [] if event == "start_array" else {}
                if len(opened) < level or not level:
                    level = self._surround(value)
                elif add is not None:
                    add(value)
                elif inner is not None:
                    inner[self._name] = value
                elif not begins:
                    found.append((self._key, value))
                if not begins:
                    continue
                opened.append(value)
                if len(opened) > level + MAX_DEPTH:
                    raise _Wrong("valid JSON", TOO_DEEP)
            inner = opened[-1] if len(opened) > level else None
            add = inner.append if isinstance(inner, list) else None
        return found

    def _surround(self, value: Any) -> int:
        """Enter the list of items, or the object around it. Returns the new level."""
        if not self._open and isinstance(value, (list, dict)):
            self._level = 1 if isinstance(value, list) else 2
        elif not self._open:
            raise _Wrong("a JSON list, or an object of lists")
        elif isinstance(value, list):
            self._key = self._name
        else:
            raise _Wrong(f"a list as the value of {self._name!r}")
        return self._level


def _skip_mark(file: BinaryIO) -> int:
    """Move behind a byte order mark, and return the place."""
    return file.seek(len(BOM) if file.read(len(BOM)) == BOM else 0)


def _located(error: _Wrong, path: Path, file: BinaryIO, near: int) -> DataError:
    """The error with its place, found by reading the file again: byte by byte near it."""
    file.seek(0)
    line, place = 1, _skip_mark(file)
    parser = _Parser()
    try:
        while block := file.read(BLOCK if place + BLOCK <= near else 1):
            parser.feed(block)
            place += len(block)
            line += block.count(b"\n")
    except _Wrong:
        pass
    # The parser notices some errors, such as a number that is too large, only at the byte that follows.
    file.seek(max(0, place - 20))
    before, shown = file.read(min(20, place)).decode("utf-8", "replace"), file.read(40).decode("utf-8", "replace")
    reason = f": {error.reason}" * bool(error.reason)
    found = f"{shown!r}{f' after {before!r}' * bool(before)}{reason}" if shown else "the end of the file"
    where = f"{path}, line {line}, byte {place:,}"
    return DataError(f"expected {error.wanted}", found=found, where=where, fix="restore the file, or correct it there")


def _unreadable(path: Path, error: Exception) -> DataError:
    found = getattr(error, "strerror", None) or str(error)
    return DataError("the data cannot be read", found=found, where=str(path), fix="correct the path")


__all__ = ["items"]
