"""Entries as JSON, which has no tuples and no keys other than text. Some verifiers compare tuples."""

from __future__ import annotations

from typing import Any

TUPLE, ITEMS = "(tuple)", "(items)"


def packed(value: Any) -> Any:
    """A value as JSON. A value that JSON does not have is left as it is."""
    if isinstance(value, tuple):
        return {TUPLE: [packed(item) for item in value]}
    if isinstance(value, list):
        return [packed(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: packed(item) for key, item in value.items()}
        return {ITEMS: [[packed(key), packed(item)] for key, item in value.items()]}
    return value


def unpacked(value: Any) -> Any:
    """The inverse of `packed`."""
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {TUPLE}:
            return tuple(unpacked(value[TUPLE]))
        if set(value) == {ITEMS}:
            return {unpacked(key): unpacked(item) for key, item in value[ITEMS]}
        return {key: unpacked(item) for key, item in value.items()}
    return value
