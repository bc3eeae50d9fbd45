"""Keyword arguments as overrides of the configuration: ``trainer={"steps": 3}`` is ``trainer.steps=3``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from rlcore.config.layers import PYTHON
from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.write import toml_value
from rlcore.plugin_calls import value_text


def override_texts(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The ``KEY=VALUE`` texts that set these values, as on the command line.

    A mapping is a table. A key may be dotted. Values are numbers, texts, paths, None, lists, and mappings in lists.

    Raises:
        ProblemsError: lists every key and value that a configuration cannot contain.
    """
    problems: list[Problem] = []
    texts = []
    for key, value in _leaves(arguments):
        if "=" in key or not all(part.strip() for part in key.split(".")):
            problems.append(_problem(key, value, 'a key has the form "table.key"'))
            continue
        try:
            texts.append(f"{key}={toml_value(_plain(value))}")
        except TypeError as error:
            fix = "give plain data; rows and images come from files, or from your own dataset: data.id=file.py:Class"
            if callable(value):
                fix = "write code to a file, and give file.py:Name"
            problems.append(_problem(key, value, f"a configuration cannot contain {error}\nfix: {fix}"))
    if problems:
        raise ProblemsError(problems)
    return tuple(texts)


def _leaves(table: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _plain(value: Any) -> Any:
    """Plain data. Numbers of numpy and paths are converted.

    Raises:
        TypeError: names the type that is not supported.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    raise TypeError(f"a value of type {type(value).__name__}")


def _problem(key: str, value: object, reason: str) -> Problem:
    return Problem(kind="bad override", path=key, value=value_text(value), origin=f"{PYTHON}{key}", reason=reason)


__all__ = ["override_texts"]
