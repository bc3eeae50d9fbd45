"""Read the items of large JSON files one by one, so that memory does not grow with the file.

ijson reads the list, or the object of lists, with ``[]`` in place of each item, and orjson reads the items, in half of
the time that ijson needs. ijson also reads the items that orjson rejects or reads differently, and locates errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import ijson
import numpy as np
import orjson
from rlcore.errors import DataError
from rlcore.json_files import MAX_DEPTH, TOO_DEEP, open_regular

BLOCK = 1 << 16
"""Bytes that are read at a time."""
LARGEST_ITEM = 1 << 28
"""Limit of one item in bytes."""
LONG_ITEM = 1 << 20
"""Bytes of an item that are collected for orjson. A damaged file may have an item that does not end."""
BOM = b"\xef\xbb\xbf"
QUOTE = ord('"')
DEPTHS = np.zeros(256, np.int8)
"""How each byte changes the depth."""
DEPTHS[list(b"[{")], DEPTHS[list(b"]}")] = 1, -1
MARKS = (DEPTHS != 0) | (np.arange(256) == QUOTE)
DIGITS = bytes.maketrans(b"123456789[: -\t\r\n", b"000000000,,,,,,,")
LONG_INTEGER = b"," + b"0" * 19
"""What an integer that may have more than 64 bits begins with after a translation with `DIGITS`."""
NOT_READ = object()
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
        file = open_regular(path)
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
            collected = max(last, place - LONG_ITEM - BLOCK)
            raise _located(error, path, file, max(0, collected - BLOCK)) from None
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
        self._splitter = _Splitter()

    def feed(self, block: bytes) -> list[Item]:
        """The items that end in this block. Raises `_Wrong`."""
        text, values = self._splitter.split(block)
        found, ready = self.feed_unsplit(text), iter(values)
        for number, (key, own) in enumerate(found):
            if isinstance(own, (list, dict)) and (value := next(ready)) is not NOT_READ:
                found[number] = key, value
        return found

    def feed_unsplit(self, block: bytes) -> list[Item]:
        """Like `feed`, without orjson."""
        if block:  # ijson takes an empty one as the end of the file
            self._call(self._parser.send, block)
        found = self._items()
        self._events.clear()
        return found

    def close(self) -> None:
        """End the file. Raises `_Wrong` if it is not complete."""
        self.feed_unsplit(self._splitter.collected)
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


class _Splitter:
    """Takes the items that are lists or objects out of the bytes of a file."""

    def __init__(self) -> None:
        self.collected = b""
        """The beginning of an item that has not ended."""
        self._collects = False
        self._level = self._depth = 0
        """The number of containers around items, and around the next byte."""
        self._in_text = self._escaped = False
        """Whether the next byte is in a string, and whether a backslash precedes it."""

    def split(self, block: bytes) -> tuple[bytes, list[Any]]:
        """The bytes for ijson, and each item that ends in them: its value, or `NOT_READ` if ijson reads it."""
        places, depths, opens = self._brackets(block)
        if (depths > self._level + MAX_DEPTH).any():  # an error
            return self.collected + block, []
        frame, values, start = [], [], 0
        borders = np.where(opens, depths == self._level + 1, depths == self._level)
        for place, begins in zip(places[borders].tolist(), opens[borders].tolist(), strict=True):
            end = place if begins else place + 1
            part, start = block[start:end], end
            if self._collects:
                part, value = _read(self.collected + part)
                values.append(value)
            elif not begins:
                values.append(NOT_READ)
            frame.append(part)
            self.collected, self._collects = b"", begins
        rest = self.collected + block[start:]
        self._collects = self._collects and len(rest) <= LONG_ITEM
        self.collected, rest = (rest, b"") if self._collects else (b"", rest)
        return b"".join([*frame, rest]), values

    def _brackets(self, block: bytes) -> tuple[Any, Any, Any]:
        """The places of brackets outside of strings, the depths behind them, and which of them open a container."""
        plain = b" " + block[1:] if self._escaped else block
        if b"\\" in plain:
            plain = re.sub(rb"\\.", b"  ", plain, flags=re.DOTALL)
        self._escaped = plain.endswith(b"\\")
        codes = np.frombuffer(plain, np.uint8)
        places = np.flatnonzero(MARKS[codes])
        is_quote = codes[places] == QUOTE
        in_text = (np.cumsum(is_quote) + self._in_text) % 2 == 1
        self._in_text = bool(in_text[-1]) if len(places) else self._in_text
        places = places[~is_quote & ~in_text]
        if not self._level and len(places):
            self._level = 1 if plain[places[0]] == ord("[") else 2
        changes = DEPTHS[codes[places]]
        depths = self._depth + np.cumsum(changes)
        self._depth = int(depths[-1]) if len(places) else self._depth
        return places, depths, changes > 0


def _read(item: bytes) -> tuple[bytes, Any]:
    """An empty list and the value of an item; the item and `NOT_READ` if orjson rejects it or may read it otherwise."""
    try:
        if LONG_INTEGER not in item.translate(DIGITS):
            return b"[]", orjson.loads(item)
    except ValueError:
        pass
    return item, NOT_READ


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
            parser.feed_unsplit(block)
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
