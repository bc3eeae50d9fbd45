"""Limits of configurations, checked before anything walks through their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlcore.config.messages import Problem, ProblemsError
from rlcore.errors import ConfigError

KeyPath = tuple[str, ...]
"""Keys from the root. List indices are digits: ``("reward", "0", "weight")``."""

MAX_BYTES = 1_000_000
"""Limit of a configuration file."""
MAX_VALUES = 10_000
"""Limit of values per source. Nested aliases of YAML can expand a few lines to more values than fit in memory."""
MAX_DEPTH = 32
"""Limit of nested tables and lists."""
MAX_OVERRIDES = 1_000
"""Limit of ``KEY=VALUE`` overrides."""
INTEGERS = range(-(2**63), 2**63)
"""Integers have 64 bits, as in TOML."""


def check_tree(tree: Mapping[str, Any], origin: Callable[[KeyPath], str], *, name: str) -> None:
    """Reject values that no key accepts: too many, too deep, or too large.

    Raises:
        ConfigError: a limit is exceeded. Integers that are too large are reported together.
    """
    problems = []
    for count, (path, value) in enumerate(_walk(tree)):
        if count > MAX_VALUES:
            raise too_large(name, f"more than {MAX_VALUES:,} values")
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


__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_OVERRIDES", "MAX_VALUES", "check_overrides", "check_tree", "too_large"]
