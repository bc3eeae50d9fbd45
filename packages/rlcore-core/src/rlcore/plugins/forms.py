"""The form of the target of each kind: a class with certain methods, or a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHODS: Mapping[str, tuple[str, ...]] = {
    "environment": ("reset", "step", "close"),
    "dataset": ("tasks",),
    "tracker": ("log", "close"),
    "engine": ("generate", "load_weights", "close"),
    "sampler": ("collect", "update_weights", "close"),
    "tool_parser": ("parse", "render"),
    "chat_format": ("prompt", "observation", "parse"),
    "trainer": ("train",),
    "strategy": ("device", "optimise"),
    "sandbox": ("open", "close"),
}
"""Kinds whose targets are classes, and their required methods."""
DIALECT = (("claims", "read_overrides"), ("read_file",))
"""A dialect needs all methods of at least one of these groups."""
CHAT_ENGINE = ("chat", "release", "close")
"""The methods of an engine that uses messages."""
FUNCTIONS = frozenset({"model", "check"})
"""Kinds whose targets are functions."""

CALLED: Mapping[str, str] = {
    "tool": "its arguments",
    "reward": "trajectory, task",
    "advantage": "inputs",
    "loss": "inputs",
}
"""Kinds whose targets are functions, or classes that are instantiated and called, with their parameters."""


def mistake_in(kind: str, target: Any) -> tuple[str, str, str] | None:
    """The required form of a target of this kind, its actual form, and the fix; None if the form is valid."""
    if kind in METHODS:
        methods = CHAT_ENGINE if kind == "engine" and hasattr(target, "chat") else METHODS[kind]
        wanted = f"must be a class with {_listed(methods)}"
        if not isinstance(target, type):
            return wanted, f"{_described(target)}", "refer to the class"
        lacking = [name for name in methods if not callable(getattr(target, name, None))]
        if lacking:
            return wanted, f"the class {target.__name__} has no {_listed(lacking, 'or')}", f"add {_listed(lacking)}"
    elif kind in FUNCTIONS and (isinstance(target, type) or not callable(target)):
        return "must be a function", _described(target), "refer to the function"
    elif kind == "dialect" and (
        isinstance(target, type) or not any(all(hasattr(target, name) for name in names) for names in DIALECT)
    ):
        wanted = "must be an object with read_file, or with keys, claims and read_overrides"
        fix = "refer to an object, not to its class" if isinstance(target, type) else "add these methods"
        return wanted, _described(target), fix
    elif kind in CALLED and not _is_called(target):
        wanted = f"must be a function of ({CALLED[kind]}), or a class with __call__"
        return wanted, _described(target), "refer to the function or the class"
    return None


def _is_called(target: Any) -> bool:
    return "__call__" in dir(target) if isinstance(target, type) else callable(target)


def _described(target: Any) -> str:
    if isinstance(target, type):
        return f"the class {target.__name__}"
    name = getattr(target, "__name__", None)
    kind = "function" if callable(target) and name else type(target).__name__
    return f"the {kind} {name}" if name else f"a value of type {kind}"


def _listed(names: tuple[str, ...] | list[str], word: str = "and") -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
