"""Search tensors for NaN and infinity."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore_models.sharded import local
from torch import Tensor


def first_non_finite(values: object, name: str = "") -> str | None:
    """Return the dotted name of the first tensor that contains NaN or infinity; None if all are finite.

    Of a tensor that is divided between processes, the part of this process is searched.
    """
    if isinstance(values, Tensor):
        return name if values.is_floating_point() and not bool(local(values).isfinite().all()) else None
    if isinstance(values, Mapping):
        items = [(str(key), value) for key, value in values.items()]
    elif isinstance(values, list | tuple):
        items = [(str(place), value) for place, value in enumerate(values)]
    else:
        return None
    found = (first_non_finite(value, f"{name}.{key}" if name else key) for key, value in items)
    return next((place for place in found if place is not None), None)
