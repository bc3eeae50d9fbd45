"""Read one flat object that a model wrote, as JSON or as a Python literal. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 4000
"""Limit of the text in characters."""

_OBJECT = re.compile(r"\s*\{\s*")
_END = re.compile(r"\s*,?\s*\}\s*")
_COLON = re.compile(r"\s*:\s*")
_COMMA = re.compile(r"\s*,\s*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"None|null|True|true|False|false")
_WORDS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}
_NUMBER = re.compile(r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?(?![\w.])")
_CLOSING = {"[": re.compile(r"\s*,?\s*\]"), "(": re.compile(r"\s*,?\s*\)")}
_AFTER_STRING = re.compile(r"\s*(?:[:}\])]|\Z|,\s*(?:['\"}\])\-+.\d\[(]|None|null|\Z))")
"""What follows the quote that ends a string. Other quotes, as in ``'don't'``, belong to the string."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "/": "/", "'": "'", '"': '"'}


def read_object(text: str) -> dict[str, Any]:
    """The object in a text that contains nothing else.

    Keys and values are strings in single or double quotes, numbers, ``null`` or ``None``, ``true`` or ``True``, and
    lists or tuples of these. An apostrophe inside a string in single quotes needs no escape. Sequences are returned as
    lists.

    Raises:
        ValueError: the text is longer than `LONGEST`, is not exactly one object, or repeats a key.
    """
    if len(text) > LONGEST:
        raise ValueError(f"more than {LONGEST:,} characters")
    found, place = _Reader(text).object()
    if place != len(text):
        raise ValueError("text after the object")
    return found


class _Reader:
    """Reads values from a position of the text, each as ``(value, position after it)``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def object(self) -> tuple[dict[str, Any], int]:
        opened = _OBJECT.match(self.text)
        if not opened:
            raise ValueError("not an object in braces")
        place, found = opened.end(), dict[str, Any]()
        while not (ended := _END.match(self.text, place)):
            if found:
                place = self._after(_COMMA, place, "a comma")
            key, place = self.string(place)
            place = self._after(_COLON, place, "a colon")
            if key in found:
                raise ValueError("a repeated key")
            found[key], place = self.value(place)
        return found, ended.end()

    def value(self, place: int) -> tuple[Any, int]:
        character = self.text[place : place + 1]
        if character in _CLOSING:
            return self.sequence(place)
        return self.scalar(place)

    def scalar(self, place: int) -> tuple[Any, int]:
        if word := _WORD.match(self.text, place):
            return _WORDS[word[0]], word.end()
        if number := _NUMBER.match(self.text, place):
            digits = number[0]
            return (int(digits) if digits.lstrip("+-").isdecimal() else float(digits)), number.end()
        return self.string(place)

    def sequence(self, place: int) -> tuple[list[Any], int]:
        """A list or tuple of scalars."""
        closing = _CLOSING[self.text[place]]
        place, items = place + 1, list[Any]()
        while not (ended := closing.match(self.text, place)):
            place = self._after(_COMMA if items else _SPACE, place, "a comma")
            item, place = self.scalar(place)
            items.append(item)
        return items, ended.end()

    def string(self, place: int) -> tuple[str, int]:
        quote = self.text[place : place + 1]
        if quote not in ("'", '"') or not quote:
            raise ValueError("not a string, number, null, list or tuple")
        end = place + 1
        while (end := self._next_quote(quote, end)) >= 0:
            if _AFTER_STRING.match(self.text, end + 1):
                return _unescaped(self.text[place + 1 : end]), end + 1
            end += 1
        raise ValueError("a string without an end")

    def _next_quote(self, quote: str, place: int) -> int:
        while (found := self.text.find(quote, place)) >= 0:
            before = self.text[place:found]
            if (len(before) - len(before.rstrip("\\"))) % 2 == 0:
                return found
            place = found + 1
        return -1

    def _after(self, pattern: re.Pattern[str], place: int, wanted: str) -> int:
        found = pattern.match(self.text, place)
        if not found:
            raise ValueError(f"{wanted} is missing")
        return found.end()


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def character(found: re.Match[str]) -> str:
        if code := found[1] or found[2]:
            return chr(int(code, 16))
        return _ESCAPED.get(found[3], found[0])

    joined = _ESCAPE.sub(character, text)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def to_json_text(items: dict[str, str]) -> str:
    """An object on one line from keys and values that are already JSON."""
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in items.items()) + "}"
