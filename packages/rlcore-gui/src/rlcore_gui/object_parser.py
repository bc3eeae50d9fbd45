"""Read one flat object that a model wrote, as JSON or as a Python literal. Nothing is evaluated.

`ast.literal_eval` and parsers of relaxed JSON reject apostrophes without escapes, as in ``'don't'``.
"""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 4000
"""Limit of the text in characters."""

_AFTER_STRING = r"""\s*(?:[:}\])]|\Z|,\s*(?:['"}\])\-+.\d\[(]|None|null|\Z))"""
"""What follows the quote that ends a string. Other quotes belong to the string."""
_TOKEN = re.compile(
    rf"""\s*(?:(?P<mark>[\[\](){{}}:,])
    |(?P<word>None|null|True|true|False|false)
    |(?P<number>[-+]?(?:\d{{1,30}}(?:\.\d{{0,30}})?|\.\d{{1,30}})(?:[eE][-+]?\d{{1,3}})?)(?![\w.])
    |(?P<quote>['"])(?P<string>(?:\\.|[^\\])*?)(?P=quote)(?={_AFTER_STRING}))""",
    re.DOTALL | re.VERBOSE,
)
_WORDS = {"None": "null", "True": "true", "False": "false"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}
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
    text, place = text.rstrip(), 0
    tokens: list[str] = []
    closing: list[str] = []
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError("not a string, number, null, list or tuple")
        place = token.end()
        if mark := token["mark"]:
            tokens += _marked(mark, closing, tokens)
        elif word := token["word"]:
            tokens.append(_WORDS.get(word, word))
        elif digits := token["number"]:
            number = int(digits) if digits.lstrip("+-").isdecimal() else float(digits)
            tokens.append(json.dumps(number))
        else:
            tokens.append(json.dumps(_unescaped(token["string"])))
    if tokens[:1] != ["{"]:
        raise ValueError("not an object in braces")
    found: dict[str, Any] = json.loads(" ".join(tokens), object_pairs_hook=_unique)
    return found


def _marked(mark: str, closing: list[str], tokens: list[str]) -> list[str]:
    """A mark as in JSON. ``closing`` are the marks that end what is open; a comma before one of them is removed."""
    if mark in _CLOSING:
        if len(closing) != (mark != "{"):
            raise ValueError("values must be scalars, lists or tuples")
        closing.append(_CLOSING[mark])
    elif mark in _CLOSING.values():
        if not closing or closing.pop() != mark:
            raise ValueError(f"an unexpected {mark}")
        if tokens[-1] == ",":
            tokens.pop()
    return [mark.translate({ord("("): "[", ord(")"): "]"})]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a repeated key")
    return found


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
