"""What the target of each kind has to be: a class with certain methods, or a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHODS: Mapping[str, tuple[str, ...]] = {
    "environment": ("reset", "step", "close"),
    "dataset": ("tasks",),
    "tracker": ("log", "close"),
    "engine": ("generate", "load_weights", "close"),
    "executor": ("collect", "sync_weights", "close"),
    "tool_parser": ("parse", "render"),
    "chat_format": ("prompt", "observation", "parse"),
    "trainer": ("train",),
    "strategy": ("step",),
}
"""Kinds whose targets are classes, and the methods that these need."""
CHAT_ENGINE = ("chat", "release", "close")
"""What an engine needs that speaks messages."""
FUNCTIONS = frozenset({"tool", "advantage", "loss", "model", "check"})
"""Kinds whose targets are called as they are."""


def mistake_in(kind: str, target: Any) -> tuple[str, str, str] | None:
    """What a target of this kind must be, what it is instead, and what mends it; None when it is right."""
    if kind in METHODS:
        methods = CHAT_ENGINE if kind == "engine" and hasattr(target, "chat") else METHODS[kind]
        wanted = f"must be a class with {_listed(methods)}"
        if not isinstance(target, type):
            return wanted, f"{_described(target)}", "name the class"
        lacking = [name for name in methods if not callable(getattr(target, name, None))]
        if lacking:
            return wanted, f"the class {target.__name__} has no {_listed(lacking, 'or')}", f"give it {_listed(lacking)}"
    elif kind in FUNCTIONS and (isinstance(target, type) or not callable(target)):
        return "must be a function", _described(target), "name the function"
    elif kind == "reward" and not _is_reward(target):
        wanted = "must be a function of (trajectory, task), or a class with __call__"
        return wanted, _described(target), "name the function or the class"
    return None


def _is_reward(target: Any) -> bool:
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
