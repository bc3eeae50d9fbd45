"""Immutable plain data, and its conversion to mutable data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

SCALARS = (str, float, int, bytes, type(None))
"""The types of most values, checked first because ``isinstance(value, Mapping)`` is slow."""
MAPPINGS = (dict, Mapping)
"""Most mappings are dictionaries, which are recognised faster."""


class FrozenDict(dict[Key, Value]):
    """A dictionary that cannot be changed after construction.

    It is a ``dict``, so JSON, pickle and ``copy.deepcopy`` treat it as one. Its values may be mutable; `freeze` makes
    all of them immutable.
    """

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be changed; copy it with dict(...)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[Key, Value]], tuple[dict[Key, Value]]]:
        return type(self), (dict(self),)

    def __repr__(self) -> str:
        return dict.__repr__(self)


def freeze(value: Any) -> Any:
    """Return a deeply immutable copy of plain data. Mappings become `FrozenDict`, lists become tuples."""
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, MAPPINGS):
        if not value and type(value) is FrozenDict:
            return value
        return FrozenDict({key: item if isinstance(item, SCALARS) else freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def has_more_items(value: Any, most: int) -> bool:
    """Whether the lists and mappings in a value have more items together. Shared ones count each time."""
    waiting, count = [value], 0
    while waiting:
        one = waiting.pop()
        inside = one.values() if isinstance(one, MAPPINGS) else one if isinstance(one, (list, tuple)) else ()
        count += len(inside)
        if count > most:
            return True
        waiting += [item for item in inside if not isinstance(item, SCALARS)]
    return False


def thaw(value: Any) -> Any:
    """Return plain dicts and lists, the inverse of `freeze`."""
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, MAPPINGS):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value
