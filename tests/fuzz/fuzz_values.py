"""Mutations of bytes, of texts and of plain data. All of them are drawn from a seeded generator."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

DIGITS = "@5000-digits@"
"""Stands in plain data for an integer that Python refuses to print; `json_text` writes its digits."""
TEXTS = (
    *("", " ", "\n", "null", "true", "-1", "0", "1.5", "1e999", "nan", "-inf", "1_000", "0x10", "auto", "none"),
    *(str(10**24), str(2**63), "9" * 5000, "0x" + "f" * 5000, "1979-05-27", "00:00:00"),
    *("../../../etc/passwd", "/etc/passwd", "/dev/null", "/", ".", "..", "~", "~nobody/x", "a/b", "x" * 300, "é" * 200),
    *("\ud800", "\udcff", "\x1b[31mred\x1b[0m", "\u202etxt", "\x07", "\x7f", "a\rb", "a\tb", "\U0010ffff", "\ufeff"),
    *(
        "[" * 2000,
        "{" * 2000,
        "a." * 500 + "a",
        "[[[[1]]]]",
        "{a=1}",
        "[1, 2",
        "'",
        '"',
        '"""',
        "'''",
        "\\",
        "=",
        "a==",
    ),
    *(
        "%s%n",
        "{0}",
        "${HOME}",
        "$(id)",
        "`id`",
        "; ls",
        "--",
        "-",
        "os:system",
        "nofile.py:X",
        "builtin:",
        "builtin:x",
    ),
    *(
        "http://localhost:1/",
        "file:///etc/passwd",
        "<|im_end|>",
        "{{ 7 * 7 }}",
        "!!python/object:os.system",
        "x" * 70_000,
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e308, 10**24, 2**63, -(2**63), 2**31, 65537, DIGITS),
    *([], {}, [[]], [{}], {"": 0}, {"id": None}, [None], [1, "a"], {"a": {"b": {"c": 1}}}, float("nan"), float("inf")),
    *TEXTS[:50],
)


def json_text(value: Any) -> str:
    """JSON of plain data, with lone surrogates escaped and `DIGITS` written out."""
    return json.dumps(value).replace(json.dumps(DIGITS), "9" * 5000)


def nested(depth: int) -> Any:
    """A list in a list, and so on."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def damage(data: bytes, rng: random.Random) -> bytes:
    """One to three changes of bytes: flipped, removed, repeated, inserted or cut off."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice((1, 1, 2, 8, 40)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[to:]
        elif kind == 2:
            data = data[:to] + data[at:to] * rng.choice((1, 3)) + data[to:]
        elif kind == 3:
            data = data[:at] + rng.choice(TEXTS).encode("utf-8", "surrogatepass") + data[at:]
        elif kind == 4:
            data = data[:at] + rng.randbytes(rng.choice((1, 4, 16))) + data[to:]
        else:
            data = data[:at]
    return data


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every table, list and value in plain data, except for the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of plain data with another value at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    known = copy.get(path[0], {}) if isinstance(copy, dict) else copy[path[0]]
    copy[path[0]] = replaced(known, path[1:], new)
    return copy


def removed(value: Any, path: tuple[Any, ...]) -> Any:
    """A copy of plain data without the item at a path."""
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = removed(copy[path[0]], path[1:])
    return copy


def altered(value: Any, rng: random.Random) -> Any:
    """Plain data with one value replaced, removed, or wrapped."""
    path = rng.choice(list(places(value)))
    kind = rng.randrange(8)
    if kind == 0:
        return removed(value, path)
    if kind == 1:
        return replaced(value, path, nested(rng.choice((40, 200))))
    return replaced(value, path, rng.choice(VALUES))
