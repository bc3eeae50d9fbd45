"""Write a configuration as TOML, with the origin of each value as a comment.

The text has no control characters besides line breaks: strings and keys contain escapes instead, which a TOML parser
reads back, and comments contain visible escapes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rlcore.config.layers import DEFAULT, override_of
from rlcore.config.origins import KeyPath
from rlcore.console.escaping import is_printable, printable
from rlcore.redaction import mask_arguments

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(
    tree: Mapping[str, Any],
    origin: Callable[[KeyPath], str] | None = None,
    *,
    following: Collection[KeyPath] = (),
) -> str:
    """The tree as TOML. None is omitted when it is the default, else written as ``"null"``.

    Args:
        tree: plain data
        origin: the origin of a value, written as a comment on the same line
        following: values derived from others, written as comments so that reading the text derives them again
    """
    lines: list[str] = []
    _table(tree, (), (), origin, following, lines)
    return "\n".join(lines).strip() + "\n"


def _table(
    tree: Mapping[str, Any],
    path: KeyPath,
    header: tuple[str, ...],
    origin: Callable[[KeyPath], str] | None,
    following: Collection[KeyPath],
    lines: list[str],
) -> None:
    """``header`` is the path as written in TOML, without list indices."""
    values: list[tuple[str, str]] = []
    for key, value in tree.items():
        if _is_table(value):
            continue
        where = origin((*path, key)) if origin else None
        if value is not None or (where not in {None, DEFAULT}):
            comment = "# " if (*path, key) in following else ""
            values.append((f"{comment}{_key(key)} = {toml_value(value)}", _note(where) if where else ""))
    width = max((len(text) for text, note in values if note and len(text) <= 60), default=0)
    lines += [f"{text:<{width}}{note}".rstrip() for text, note in values]
    for key, value in tree.items():
        inner = (*header, _key(key))
        if isinstance(value, Mapping) and value:
            lines += ["", f"[{'.'.join(inner)}]"]
            _table(value, (*path, key), inner, origin, following, lines)
        elif isinstance(value, list) and _is_table(value):
            for index, item in enumerate(value):
                lines += ["", f"[[{'.'.join(inner)}]]"]
                _table(item, (*path, key, str(index)), inner, origin, following, lines)


def _note(origin: str) -> str:
    """A comment without secrets. It has no two spaces, because these begin a comment."""
    place, override = override_of(origin)
    (text,) = mask_arguments([override])
    return f"  # {place}{' '.join(printable(' '.join(text.split())).split())}"


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """A basic string. TOML has no lone surrogates: they become visible escapes."""
    return "".join(map(_character, json.dumps(text, ensure_ascii=False)))


def _character(character: str) -> str:
    if is_printable(character):
        return character
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        return f"\\\\u{code:04x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def toml_value(value: Any) -> str:
    """One value on one line."""
    if value is None:
        return '"null"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return _string(str(value))
