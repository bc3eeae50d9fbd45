"""Spaces of gymnasium from plain data; imports gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rlcore.errors import EnvironmentFailure
from rlcore.plugin_calls import value_text


def space_of(data: Any, place: str = "the space") -> Space[Any]:
    """The space that ``space_as_data`` describes.

    Raises:
        EnvironmentFailure: it describes none.
    """
    try:
        return _space_of(data, place)
    except (KeyError, TypeError, ValueError, AssertionError, OverflowError) as error:
        text = f"{place} of the other interpreter is not a space: {value_text(data)}: {error}"
        raise EnvironmentFailure(text) from None


def _space_of(data: Mapping[str, Any], place: str) -> Space[Any]:
    kind = data["type"]
    if kind == "box":
        dtype: Any = np.dtype(data["dtype"])
        shape = data.get("shape")
        low, high = np.asarray(data["low"], dtype=dtype), np.asarray(data["high"], dtype=dtype)
        return spaces.Box(low, high, dtype=dtype) if shape is None else _box_of_shape(low, high, shape, dtype)
    if kind == "discrete":
        return spaces.Discrete(int(data["n"]), start=int(data.get("start", 0)))
    if kind == "multidiscrete":
        start = data.get("start")
        dtype = np.dtype(data.get("dtype", "int64"))
        return spaces.MultiDiscrete(np.asarray(data["nvec"]), dtype=dtype, start=start)
    if kind == "multibinary":
        return spaces.MultiBinary(data["n"])
    if kind == "text":
        limits = {"min_length": int(data["min_length"]), "max_length": int(data["max_length"])}
        return spaces.Text(charset=str(data["charset"]), **limits)
    if kind == "dict":
        return spaces.Dict({name: _space_of(part, f"{place}.{name}") for name, part in data["spaces"].items()})
    if kind == "tuple":
        return spaces.Tuple([_space_of(part, f"{place}[{index}]") for index, part in enumerate(data["spaces"])])
    raise ValueError(f"{place} is of the unknown type {kind!r}")


def _box_of_shape(low: Any, high: Any, shape: Any, dtype: Any) -> Space[Any]:
    return spaces.Box(np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), dtype=dtype)


def flaw_in(value: Any, space: Space[Any], place: str) -> str | None:
    """What of an observation does not belong to the space: its parts, types and shapes, not its numbers."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or value.keys() != space.spaces.keys():
            found = f"the keys {sorted(map(str, value))}" if isinstance(value, dict) else f"a {type(value).__name__}"
            return f"{place} has {found}, its space has the keys {sorted(space.spaces)}"
        flaws = (flaw_in(value[name], part, f"{place}[{name!r}]") for name, part in space.spaces.items())
        return next(filter(None, flaws), None)
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            return f"{place} is not a tuple of {len(space.spaces)} parts"
        pairs = enumerate(zip(value, space.spaces, strict=True))
        return next(filter(None, (flaw_in(item, part, f"{place}[{n}]") for n, (item, part) in pairs)), None)
    if isinstance(space, spaces.Text):
        return None if isinstance(value, str) else f"{place} is a {type(value).__name__}, its space has texts"
    if isinstance(value, (str, bytes, dict)) or value is None:
        return f"{place} is a {type(value).__name__}, its space has numbers"
    if (shape := np.shape(value)) != space.shape:
        return f"{place} has the shape {shape}, its space has {space.shape}"
    return None
