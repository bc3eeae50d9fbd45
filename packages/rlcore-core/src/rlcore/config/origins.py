"""Parse TOML and YAML files and record the line number of each value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcore.errors import ConfigError, NotInstalledError

KeyPath = tuple[str, ...]
"""Keys from the root. List indices are digits: ``("reward", "0", "weight")``."""

MAX_VALUES = 100_000
"""Limit per YAML file. Nested aliases can expand a few lines to more values than fit in memory."""

_NUMBER: list[tuple[re.Pattern[str], Callable[[str], Any]]] = [
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
]


def read_text(path: Path) -> str:
    """Read a configuration file.

    Raises:
        ConfigError: the file is missing or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration file {path}", fix="give an existing .toml or .yaml file"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}", found=str(error)) from None


def parse_toml(text: str, name: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The values of a TOML text, and the line of each key."""
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid TOML", found=str(error), where=name) from None
    return tree, toml_lines(text)


def toml_lines(text: str) -> dict[KeyPath, int]:
    """The line number, from 1, of every table header and key in a valid TOML text.

    Keys of an inline table have the line of the table.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position, end = 0, len(text)
    while position < end:
        if text[position] in " \t\r\n":
            position += 1
        elif text[position] == "#":
            position = _end_of_line(text, position)
        elif text[position] == "[":
            line = text.count("\n", 0, position) + 1
            array = text.startswith("[[", position)
            start = position + (2 if array else 1)
            stop = _skip(text, start, "]")
            table = _table_path(_keys(text[start:stop]), counts, array)
            lines[table] = line
            position = _end_of_line(text, stop)
        else:
            line = text.count("\n", 0, position) + 1
            stop = _skip(text, position, "=")
            path = table + _keys(text[position:stop])
            for depth in range(len(table) + 1, len(path) + 1):
                lines.setdefault(path[:depth], line)
            position = _skip(text, stop + 1, "\n")
    return lines


def _table_path(keys: KeyPath, counts: dict[KeyPath, int], array: bool) -> KeyPath:
    path: KeyPath = ()
    for index, key in enumerate(keys):
        path = (*path, key)
        if array and index == len(keys) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, str(counts[path]))
    return path


def _keys(text: str) -> KeyPath:
    node: Any = tomllib.loads(f"{text.strip()} = 0")
    path: list[str] = []
    while isinstance(node, dict):
        key, node = next(iter(node.items()))
        path.append(key)
    return tuple(path)


def _end_of_line(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found


def _skip(text: str, position: int, stop: str) -> int:
    """The next position of ``stop`` outside strings, brackets and comments."""
    depth = 0
    while position < len(text):
        character = text[position]
        if depth == 0 and character == stop:
            return position
        if text.startswith(('"""', "'''"), position):
            quote = text[position : position + 3]
            position += 3
            while not text.startswith(quote, position):
                position += 2 if character == '"' and text[position] == "\\" else 1
            position += 3
            while position < len(text) and text[position] == character:  # up to two additional quotes
                position += 1
            continue
        if character in "\"'":
            position += 1
            while text[position] != character:
                position += 2 if character == '"' and text[position] == "\\" else 1
        elif character == "#":
            position = _end_of_line(text, position)
            continue
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        position += 1
    return position


def parse_yaml(text: str, name: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The values of a YAML text, and the line of each key.

    Scalars follow the YAML 1.2 core schema: ``5e-7`` is a number, ``no`` is a string.
    """
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise NotInstalledError(
            f"{name} is a YAML file, and no YAML parser is installed",
            fix="pip install 'rlcore-core[yaml]'   (or convert the file to TOML)",
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid YAML", found=" ".join(str(error).split()), where=name) from None
    lines: dict[KeyPath, int] = {}
    open_nodes: set[int] = set()
    count = 0

    def convert(node: Any, path: KeyPath) -> Any:
        nonlocal count
        count += 1
        where = f"{name}:{node.start_mark.line + 1}"
        if id(node) in open_nodes:
            raise ConfigError(f"{name} contains an alias to itself", where=where)
        if count > MAX_VALUES:
            found = f"more than {MAX_VALUES:,} values after expanding aliases"
            raise ConfigError(f"{name} is too large for a configuration", found=found, where=where)
        if not _is_plain(node):
            tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
            raise ConfigError(f"{name} has an unsupported YAML tag", found=tag, where=where, fix="remove the tag")
        open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.ScalarNode):
                return _yaml_scalar(node.value) if node.style is None else node.value
            if isinstance(node, yaml.SequenceNode):
                return [convert_at(item, (*path, str(index))) for index, item in enumerate(node.value)]
            table: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key = str(key_node.value)
                where = f"{name}:{key_node.start_mark.line + 1}"
                if key_node.tag == "tag:yaml.org,2002:merge":
                    raise ConfigError(
                        f"{name} uses a merge key (<<)",
                        found="merge keys are YAML 1.1; files are read as YAML 1.2",
                        where=where,
                        fix="write out the keys, or pass several files: -c COMMON.yaml -c THIS.yaml",
                    )
                if not isinstance(key_node, yaml.ScalarNode):
                    raise ConfigError(f"{name} has a key that is not a string", where=where)
                if key in table:
                    raise ConfigError(f"duplicate key {'.'.join((*path, key))} in {name}", where=where)
                table[key] = convert(value_node, (*path, key))
                lines[(*path, key)] = key_node.start_mark.line + 1
            return table
        finally:
            open_nodes.discard(id(node))

    def convert_at(node: Any, path: KeyPath) -> Any:
        lines[path] = node.start_mark.line + 1
        return convert(node, path)

    tree = {} if node is None else convert(node, ())
    if not isinstance(tree, dict):
        raise ConfigError(f"{name} must contain a table of keys", found=type(tree).__name__, where=name)
    return tree, lines


def _is_plain(node: Any) -> bool:
    """Whether a node has a standard tag. Dates and similar values are read as strings."""
    kinds = {"str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map"}
    return str(node.tag).removeprefix("tag:yaml.org,2002:") in kinds


def _yaml_scalar(text: str) -> Any:
    for pattern, read in _NUMBER:
        if pattern.fullmatch(text):
            return read(text)
    return text
