"""Parse TOML and YAML files within limits, and record the line number of each value."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.config.messages import Problem, ProblemsError
from rlcore.errors import ConfigError, NotInstalledError
from rlcore.json_files import open_regular
from rlcore.plugins.loading import pip_line

KeyPath = tuple[str, ...]
"""Keys from the root. List indices are digits: ``("reward", "0", "weight")``."""

MAX_BYTES = 1_000_000
"""Limit of a configuration file."""
MAX_VALUES = 10_000
"""Limit of values per source. Nested aliases of YAML can expand a few lines to more values than fit in memory."""
MAX_LINES = 20_000
"""Limit of lines of a file. Reading YAML takes a millisecond for a few of them."""
MAX_KEY = 1_000
"""Limit of the characters of a key."""
MAX_DEPTH = 32
"""Limit of nested tables and lists."""
MAX_OVERRIDES = 1_000
"""Limit of ``KEY=VALUE`` overrides."""
INTEGERS = range(-(2**63), 2**63)
"""Integers have 64 bits, as in TOML."""
_BARE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TOML_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|"(?:[^"\\\n]|\\.)*"'
    r"|'''(?:[^']|'(?!''))*'{3,5}|'[^'\n]*'|#[^\n]*|[^\"'#\n\[\]{}=]+|.",
    re.DOTALL,
)
"""A string, a comment, a line break, a bracket, an equals sign, or a text without them."""
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
        ConfigError: the file is missing, too large, or cannot be read.
    """
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration file {path}", fix="give an existing .toml or .yaml file"
        ) from None
    except (OSError, ValueError) as error:
        fix = "give a readable file in UTF-8"
        raise ConfigError(f"cannot read the configuration file {path}", found=str(error), fix=fix) from None
    if len(data) > MAX_BYTES:
        raise too_large(str(path), f"more than {MAX_BYTES:,} bytes")
    if (lines := text.count("\n")) > MAX_LINES:
        raise too_large(str(path), f"{lines:,} lines, of at most {MAX_LINES:,}")
    return text


def parse_toml(text: str, name: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The values of a TOML text, and the line of each key. Raises as `toml_tree`."""
    return toml_tree(text, name), toml_lines(text)


def toml_tree(text: str, name: str) -> dict[str, Any]:
    """The values of a TOML text. Dates are read as strings, as in YAML.

    Raises:
        ConfigError: the text is not valid TOML, or exceeds a limit.
    """
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        fix = "correct the file; a string needs quotes"
        raise ConfigError(f"{name} is not valid TOML", found=str(error), where=name, fix=fix) from None
    check_tree(tree, lambda path: name, name=name)
    return dict(_dates_as_text(tree))


def _dates_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _dates_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(item) for item in value]
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else value


def toml_lines(text: str) -> dict[KeyPath, int]:
    """The line number, from 1, of every table header and key in a valid TOML text.

    Keys of an inline table have the line of the table.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    key, in_value, depth, line, first = "", False, 0, 1, 1
    for token in (*_TOML_TOKEN.findall(text), "\n"):
        if token == "\n" and depth == 0:
            key = key.strip()
            if key.startswith("["):
                array = key.startswith("[[")
                table = _table_path(_keys(key[2:-2] if array else key[1:-1]), counts, array)
                lines[table] = first
            elif key:
                path = table + _keys(key)
                for length in range(len(table) + 1, len(path) + 1):
                    lines.setdefault(path[:length], first)
            key, in_value = "", False
        elif token == "=" and depth == 0:
            in_value = True
        elif not in_value and token[0] != "#":
            first = line if not key.strip() else first
            key += token
        depth += (token in {"[", "{"}) - (token in {"]", "}"})
        line += token.count("\n")
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
    if _BARE.fullmatch(text.strip()):  # as nearly all; a parser for each line takes half of the time of a file
        return tuple(text.strip().split("."))
    node: Any = tomllib.loads(f"{text.strip()} = 0")
    path: list[str] = []
    while isinstance(node, dict):
        key, node = next(iter(node.items()))
        path.append(key)
    return tuple(path)


def parse_yaml(text: str, name: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The values of a YAML text, and the line of each key.

    Scalars follow the YAML 1.2 core schema: ``5e-7`` is a number, ``no`` is a string.
    """
    try:
        import yaml
    except ImportError:
        raise NotInstalledError(
            f"{name} is a YAML file, and no YAML parser is installed",
            fix=f"{pip_line(['rlcore-core[yaml]'])}   (or convert the file to TOML)",
        ) from None
    try:
        node = yaml.compose(text, Loader=_limited(yaml.SafeLoader, name))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        found, fix = " ".join(str(error).split()), "correct the file; quote texts with special characters"
        raise ConfigError(f"{name} is not valid YAML", found=found, where=name, fix=fix) from None
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
            raise too_large(name, f"more than {MAX_VALUES:,} values after expanding aliases")
        if len(path) > MAX_DEPTH:
            found, fix = f"more than {MAX_DEPTH} levels", "remove levels"
            raise ConfigError(f"{name} is nested too deeply", found=found, where=where, fix=fix)
        if not _is_plain(node):
            tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
            raise ConfigError(f"{name} has an unsupported YAML tag", found=tag, where=where, fix="remove the tag")
        open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.ScalarNode):
                return _yaml_scalar(node.value, where) if node.style is None else node.value
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
                    fix = "remove one of them"
                    raise ConfigError(f"duplicate key {'.'.join((*path, key))} in {name}", where=where, fix=fix)
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
        fix = "write KEY: VALUE"
        raise ConfigError(f"{name} must contain a table of keys", found=type(tree).__name__, where=name, fix=fix)
    check_tree(tree, lambda path: f"{name}:{lines.get(path, 1)}", name=name)
    return tree, lines


def _limited(loader: type[Any], name: str) -> type[Any]:
    """A loader of YAML that stops at more nodes than there can be: each value has a key."""

    class Limited(loader):  # type: ignore[misc]
        nodes = 0

        def compose_node(self, *arguments: Any) -> Any:
            self.nodes += 1
            if self.nodes > 2 * MAX_VALUES:
                raise too_large(name, f"more than {MAX_VALUES:,} values")
            return super().compose_node(*arguments)

    return Limited


def _is_plain(node: Any) -> bool:
    """Whether a node has a standard tag. Dates and similar values are read as strings."""
    kinds = {"str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map"}
    return str(node.tag).removeprefix("tag:yaml.org,2002:") in kinds


def _yaml_scalar(text: str, where: str) -> Any:
    for pattern, read in _NUMBER:
        if pattern.fullmatch(text):
            try:
                return read(text)
            except ValueError:  # Python limits the number of digits
                found, fix = f"{len(text):,} digits", "write a smaller number, or quote it"
                raise ConfigError("an integer needs 64 bits at most", found=found, where=where, fix=fix) from None
    return text


def check_tree(tree: Mapping[str, Any], origin: Callable[[KeyPath], str], *, name: str) -> None:
    """Reject values that no key accepts: too many, too deep, or too large.

    Raises:
        ConfigError: a limit is exceeded. Integers that are too large are reported together.
    """
    problems = []
    for count, (path, value) in enumerate(_walk(tree)):
        if count > MAX_VALUES:
            raise too_large(name, f"more than {MAX_VALUES:,} values")
        if path and len(path[-1]) > MAX_KEY:
            found = f"{len(path[-1]):,} characters that begin with {path[-1][:40]!r}"
            fix = "correct the key"
            raise ConfigError(f"a key has at most {MAX_KEY:,} characters", found=found, where=name, fix=fix)
        if len(path) > MAX_DEPTH:
            fix = "remove levels"
            raise ConfigError(
                f"{name} is nested too deeply", found=f"more than {MAX_DEPTH} levels", where=origin(path[:1]), fix=fix
            )
        if isinstance(value, int) and value not in INTEGERS:
            reason = f"needs an integer of 64 bits; found {value.bit_length():,} bits"
            problems.append(Problem(kind="bad value", path=".".join(path), origin=origin(path), reason=reason))
    if problems:
        raise ProblemsError(problems, subject=name)


def check_overrides(overrides: Sequence[str]) -> None:
    """Raise `ConfigError` when there are too many overrides."""
    if len(overrides) > MAX_OVERRIDES:
        found = f"{len(overrides):,}; the limit is {MAX_OVERRIDES:,}"
        raise ConfigError("too many overrides", found=found, where="command line", fix="write them to a file: -c FILE")


def too_large(name: str, found: str) -> ConfigError:
    """The error for a configuration that exceeds a limit."""
    return ConfigError(
        f"{name} is too large for a configuration",
        found=found,
        where=name,
        fix=f"keep it below {MAX_BYTES:,} bytes and {MAX_VALUES:,} values",
    )


def _walk(tree: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Every table, list and value, parents first, without recursion."""
    pending: list[tuple[KeyPath, Any]] = [((), tree)]
    while pending:
        path, value = pending.pop()
        yield path, value
        items: Iterator[tuple[Any, Any]] = iter(())
        if isinstance(value, Mapping):
            items = iter(value.items())
        elif isinstance(value, list):
            items = iter(enumerate(value))
        pending += [((*path, str(key)), item) for key, item in items]
