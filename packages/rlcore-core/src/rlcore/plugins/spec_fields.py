"""Check the fields of the specs that plugins return, which dataclasses do not."""

from __future__ import annotations

import types
import typing
from collections.abc import Hashable, Iterable
from dataclasses import fields
from functools import cache
from itertools import islice
from typing import Any, cast

from rlcore.plugin_calls import value_text
from rlcore.specs import Spec

MOST_SPECS = 10_000
"""The most specs that a hook may return. A generator may never end."""


def checked_specs(answer: object, expected: type[Spec]) -> list[Spec]:
    """The specs that a register hook returned; None is no spec.

    Raises:
        TypeError: it returned something else, or a spec has a field of the wrong type.
        ValueError: it returned more than `MOST_SPECS`.
    """
    if answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes)):
        raise TypeError(f"returned {value_text(answer)}, expected {expected.__name__} objects")
    specs = []
    for spec in islice(answer, MOST_SPECS + 1):
        if not isinstance(spec, expected):
            raise TypeError(f"returned {value_text(spec)}, expected {expected.__name__} objects")
        if wrong := wrong_field(spec):
            raise TypeError(f"returned a {type(spec).__name__} whose {wrong}")
        specs.append(spec)
    if len(specs) > MOST_SPECS:
        raise ValueError(f"returned more than {MOST_SPECS} objects")
    return specs


def wrong_field(spec: Spec) -> str | None:
    """The first field of the wrong type; None if there is none."""
    for field in fields(spec):
        wanted = _types_of(cast(Hashable, type(spec))).get(field.name, object)
        value = getattr(spec, field.name)
        if not _fits(value, wanted):
            name = wanted.__name__ if isinstance(wanted, type) else str(wanted).replace("typing.", "")
            return f"{field.name} is {value_text(value)}, expected {name}"
    return None if spec.id else "id is empty"


@cache
def _types_of(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _fits(value: object, wanted: Any) -> bool:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Literal:
        return isinstance(value, str) and value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple and arguments[-1] is ...:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin is tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(_fits(item, one) for item, one in zip(value, arguments, strict=True))
        )
    if origin is frozenset:
        return isinstance(value, frozenset) and all(_fits(item, arguments[0]) for item in value)
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted) if isinstance(wanted, type) else True
