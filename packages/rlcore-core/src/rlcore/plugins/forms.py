"""The form of the target of each kind: a class with certain methods, or a function; the types of a spec's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from rlcore.plugin_calls import value_text
from rlcore.specs import Spec

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
OTHERS: Mapping[str, tuple[str, ...]] = {"engine": ("chat", "release", "close"), "environment": ("run", "close")}
"""The methods of an engine that uses messages, and of a `Harness`: classes that have the first, but not that above."""
FUNCTIONS = frozenset({"model", "check", "diagnosis"})
"""Kinds whose targets are functions."""
CALLED = {
    "tool": "its arguments",
    "reward": "trajectory, task",
    **dict.fromkeys(("advantage", "loss", "preference_loss"), "inputs"),
}
"""Kinds whose targets are functions, or classes that are instantiated and called, with their parameters."""


def disagreement(spec: Spec, target: Any, names: frozenset[str]) -> tuple[str, Any] | None:
    """The first of these fields for which a target has an attribute with another value than its spec, with that."""
    for name in sorted(names & {field.name for field in fields(spec)}):
        value = getattr(target, name, None)
        if isinstance(value, str | int | float | tuple) and value != getattr(spec, name):
            return name, value
    return None


def mistake_in(kind: str, target: Any) -> tuple[str, str, str] | None:
    """The required form of a target of this kind, its actual form, and the fix; None if the form is valid."""
    is_class = isinstance(target, type)
    if kind in METHODS:
        methods, others = METHODS[kind], OTHERS.get(kind, ())
        if others and hasattr(target, others[0]) and not hasattr(target, methods[0]):
            methods = others
        wanted = f"must be a class with {_listed(methods)}"
        if not is_class:
            return wanted, _described(target), "refer to the class"
        if lacking := [name for name in methods if not callable(getattr(target, name, None))]:
            return wanted, f"the class {target.__name__} has no {_listed(lacking, 'or')}", f"add {_listed(lacking)}"
    elif kind in FUNCTIONS and (is_class or not callable(target)):
        return "must be a function", _described(target), "refer to the function"
    elif kind == "config_adapter" and (is_class or not {"read_file", "read_overrides"} & set(dir(target))):
        wanted = "must be an object with read_file, or with keys, claims and read_overrides"
        return wanted, _described(target), "refer to an object, not to its class" if is_class else "add these methods"
    elif kind in CALLED and not ("__call__" in dir(target) if is_class else callable(target)):
        wanted = f"must be a function of ({CALLED[kind]}), or a class with __call__"
        return wanted, _described(target), "refer to the function or the class"
    return None


def wrong_fields(spec: Spec) -> Iterator[str]:
    """The fields of a spec that have the wrong type, with the reason."""
    from pydantic import TypeAdapter, ValidationError  # most commands check no spec

    hints = get_type_hints(type(spec))
    for name in (field.name for field in fields(spec)):
        try:
            TypeAdapter(hints[name]).validate_python(getattr(spec, name), strict=True)
        except ValidationError as error:
            yield f"{name} is {value_text(getattr(spec, name))}: {error.errors()[0]['msg']}"


def _described(target: Any) -> str:
    name = getattr(target, "__name__", None)
    if isinstance(target, type):
        return f"the class {name}"
    kind = "function" if callable(target) and name else type(target).__name__
    return f"the {kind} {name}" if name else f"a value of type {kind}"


def _listed(names: Sequence[str], word: str = "and") -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
